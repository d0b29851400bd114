"""The part that serves the paths of Aliyun's extender, so that its users' policy and tools find them."""

from dataclasses import dataclass
from functools import partial

from gas.daemon.flags import PartFlags, switch
from gas.extender.part import Additions, Core, Part

PREFIX = "/gpushare-scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpushareFlags(PartFlags):
    paths: bool = switch(
        "gpushare-paths",
        f"Also serve filter and bind under {PREFIX}/, and {PREFIX}/inspect on the port of the metrics, as Aliyun's "
        "extender does.",
        group="Vocabularies",
    )


def _build(core: Core) -> Additions:
    from gas.extender.gpushare.inspect import inspect_json

    return Additions(
        other_paths={f"{PREFIX}/{verb}": verb for verb in ("filter", "bind")},
        documents=dict.fromkeys(
            (f"{PREFIX}/inspect", f"{PREFIX}/inspect/{{node}}"), partial(inspect_json, core.decider)
        ),
    )


GPUSHARE = Part(flags=GpushareFlags, is_on=lambda flags: flags.of(GpushareFlags).paths, build=_build)

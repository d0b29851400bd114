"""Declare the part that names the cards for container runtimes with CDI."""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from gas.daemon import flag_values as values
from gas.daemon.flags import PartFlags, flag
from gas.plugin.part import Core, CoreFlags, Hooks, Part, PodNeeds

WRITTEN_WITHIN = 1.0  # Seconds to wait for the first CDI file before devices are offered. Runtimes look names up in it.


class Cdi(StrEnum):
    """How the cards are named for runtimes with CDI, in addition to device nodes, which every runtime knows."""

    NONE = "none"
    NAMES = "names"  # the field of kubelet's API
    ANNOTATIONS = "annotations"  # for runtimes that read only the older annotation


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiFlags(PartFlags):
    cdi: Cdi = flag(
        "cdi=MODE",
        values.one_of(Cdi),
        Cdi.NONE,
        "Also name the cards for CDI: none, names (in the field of kubelet's API) or annotations.",
        group="Allocating cards",
    )
    cdi_file: Path = flag(
        "cdi-file=FILE",
        values.file,
        "/var/run/cdi/gpu.intel.com-card.json",
        "The CDI file that describes the cards, with --cdi.",
    )


def _build(core: Core, flags: CdiFlags) -> Hooks:
    from gas.plugin.cdi.cdi_file import CDI_FILE, cdi_text, with_cdi_names
    from gas.plugin.published_file import PublishedFile

    file = PublishedFile(flags.cdi_file, CDI_FILE)
    return Hooks(
        tasks=(file.run,),
        edits=(partial(with_cdi_names, as_annotation=flags.cdi is Cdi.ANNOTATIONS),),
        writers=(file,),
        on_cards=lambda gpus: file.want(cdi_text(gpus, core.presentation)),
        before_serving=lambda: file.first_check(WRITTEN_WITHIN),
    )


def _uninstall(_core: CoreFlags, own: CdiFlags) -> None:
    from gas.plugin.cdi.cdi_file import CDI_FILE

    CDI_FILE.remove(own.cdi_file)


CDI = Part(
    name="cdi",
    flags=CdiFlags,
    is_on=lambda _core, own: own.cdi is not Cdi.NONE,
    build=_build,
    switched_on_by="--cdi=names or --cdi=annotations",
    settings=frozenset({"cdi-file"}),
    pod=PodNeeds(mounts=("/var/run/cdi",)),
    uninstall=_uninstall,
)

"""Declare the part that describes the cards in a feature file for Node Feature Discovery."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gas.daemon import flag_values as values
from gas.daemon.flags import PartFlags, flag
from gas.plugin.part import Core, CoreFlags, FlagChoice, Hooks, Part, PodNeeds

DIRECTORY = "/etc/kubernetes/node-feature-discovery/features.d"
WRITER = FlagChoice("nfd", "it writes a feature file for Node Feature Discovery")


@dataclass(frozen=True, slots=True, kw_only=True)
class NfdFlags(PartFlags):
    nfd_file: Path = flag(
        "nfd-file=FILE",
        values.file,
        f"{DIRECTORY}/intel-gpu-resources.txt",
        "The feature file, with --write-node=nfd.",
        group="The node",
    )


def _build(_core: Core, flags: NfdFlags) -> Hooks:
    from gas.plugin.nfd.nfd_file import FEATURE_FILE, describe
    from gas.plugin.published_file import PublishedFile

    file = PublishedFile(flags.nfd_file, FEATURE_FILE)
    return Hooks(tasks=(file.run,), writers=(file,), on_description=partial(describe, file), at_end=file.end)


def _uninstall(_core: CoreFlags, own: NfdFlags) -> None:
    from gas.plugin.nfd.nfd_file import FEATURE_FILE

    FEATURE_FILE.remove(own.nfd_file)


NFD = Part(
    name="nfd",
    flags=NfdFlags,
    is_on=lambda core, _own: core.write_node == WRITER.name,
    build=_build,
    switched_on_by=f"--write-node={WRITER.name}",
    settings=frozenset({"nfd-file"}),
    node_writer=WRITER,
    pod=PodNeeds(mounts=(DIRECTORY,)),
    uninstall=_uninstall,
)

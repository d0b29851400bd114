"""The node's labels and resources as a feature file for Node Feature Discovery (NFD), instead of writing the node.

NFD's worker reads the file and its master writes the node: ``name=value`` lines become labels under exactly these
names, for ``gpu.intel.com`` is no namespace that it refuses, and those that it is told to take as extended resources
(``gpu.intel.com/millicores``, ``…/memory.max``, ``…/tiles``) become capacity. It cannot write the annotation about
unlike cards, so a node that has such needs the direct way.

With both ways on, both write equal values under equal names, which is no fight; but NFD takes away what it once wrote
when the file goes, and the plugin puts it back. One way is enough, and the direct one is sooner.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gas.errors import GasError
from gas.plugin.files.plain_file import refuse_what_is_none

DEFAULT_PATH = Path("/etc/kubernetes/node-feature-discovery/features.d/intel-gpu-resources.txt")


class UnwritableFeatureFile(GasError):
    """The file could not be written. What it held before, if anything, is still there."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"cannot write the NFD feature file {path}: {error.strerror}; what NFD read before stays."
            f" {path.parent} must be a directory of the node that this program may write to"
        )


class FeatureFileStays(GasError):
    """The file could not be taken away."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"cannot remove the NFD feature file {path}: {error.strerror}; NFD goes on reading it, remove it by hand"
        )


def feature_text(labels: Mapping[str, str], resources: Mapping[str, int]) -> str:
    """The content of the file, one feature a line in order of their names."""
    features = {**labels, **{name: str(amount) for name, amount in resources.items()}}
    return "".join(f"{name}={value}\n" for name, value in sorted(features.items()))


def write_feature_file(path: Path, text: str) -> None:
    """Put the text in the place of the file, whole or not at all. Raises UnwritableFeatureFile.

    It is written in a directory beside the file first: NFD reads every file that it finds, but in no directories.
    """
    aside = path.parent / f".{path.name}.new"
    unfinished = aside / path.name
    try:
        refuse_what_is_none(path)
        aside.mkdir(exist_ok=True)
        try:
            with unfinished.open("w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
            aside.rmdir()
    except OSError as error:
        raise UnwritableFeatureFile(path, error) from error


def remove_feature_file(path: Path) -> None:
    """Take the file away; that it is not there is no fault. Raises FeatureFileStays."""
    try:
        refuse_what_is_none(path)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise FeatureFileStays(path, error) from error

"""The node's labels and resources as a feature file for Node Feature Discovery (NFD), instead of patching the node.

NFD's worker reads the file and its master writes the node. Lines ``name=value`` become labels of exactly these names,
since NFD accepts the namespace ``gpu.intel.com``. Those that NFD is configured to treat as extended resources
(``gpu.intel.com/millicores``, ``…/memory.max``, ``…/tiles``) become capacity. NFD cannot write the annotation about
cards that differ, so a node with such cards has to be patched.

If both ways are used, both write equal values under equal names and do not conflict. But NFD removes what it wrote once
the file is gone, and the plugin writes it again. One way is enough, and patching is faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gas.plugin.kept_file import remove_file, replace_file
from gas.values.errors import GasError

DEFAULT_PATH = Path("/etc/kubernetes/node-feature-discovery/features.d/intel-gpu-resources.txt")


class UnwritableFeatureFile(GasError):
    """The file could not be written. Its earlier text, if any, is still there."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"cannot write the NFD feature file {path}: {error.strerror}; NFD keeps what it read before."
            f" {path.parent} must be a directory of the node that this program may write to"
        )


class UnremovableFeatureFile(GasError):
    """The file could not be removed."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"cannot remove the NFD feature file {path}: {error.strerror}; NFD still reads it, so remove it by hand"
        )


def feature_text(labels: Mapping[str, str], resources: Mapping[str, int]) -> str:
    """Return the text of the file, one feature per line, sorted by name."""
    features = {**labels, **{name: str(amount) for name, amount in resources.items()}}
    return "".join(f"{name}={value}\n" for name, value in sorted(features.items()))


def write_feature_file(path: Path, text: str) -> None:
    """Replace the file with one of this text, as a whole or not at all. Raises UnwritableFeatureFile.

    The text is first written in a directory beside the file: NFD reads every file there, but no directories.
    """
    aside = path.parent / f".{path.name}.new"
    try:
        aside.mkdir(exist_ok=True)
        try:
            replace_file(path, text, unfinished=aside / path.name)
        finally:
            aside.rmdir()
    except OSError as error:
        raise UnwritableFeatureFile(path, error) from error


def remove_feature_file(path: Path) -> None:
    """Remove the file if it exists. Raises UnremovableFeatureFile."""
    try:
        remove_file(path)
    except OSError as error:
        raise UnremovableFeatureFile(path, error) from error

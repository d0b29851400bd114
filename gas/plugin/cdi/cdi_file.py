"""The CDI spec file: it describes each card as a CDI device for container runtimes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from gas.plugin.devices.allocation import CDI_KIND, Presentation, by_path_mounts, card_nodes
from gas.plugin.kept_file import remove_file, replace_file
from gas.values.card_facts import CardFacts
from gas.values.errors import GasError

DEFAULT_PATH = Path("/var/run/cdi/gpu.intel.com-card.json")
CDI_VERSION = "0.5.0"
"""The oldest version in which a device node may have another path on the host."""


class UnwritableCdiFile(GasError):
    """The file could not be written. Its earlier text, if any, is still there."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"cannot write the CDI file {path}: {error.strerror}; runtimes do not know the cards."
            f" {path.parent} must be a directory of the node that this program may write to"
        )


class UnremovableCdiFile(GasError):
    """The file could not be removed."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"cannot remove the CDI file {path}: {error.strerror}; remove it by hand")


def cdi_text(gpus: Iterable[CardFacts], presentation: Presentation) -> str:
    """Return the text of the file: a CDI device per card, with the nodes and mounts that containers get without CDI."""
    spec = {
        "cdiVersion": CDI_VERSION,
        "kind": CDI_KIND,
        "devices": [
            {
                "name": str(gpu.card),
                "containerEdits": {
                    "deviceNodes": [
                        {"path": node.container_path, "hostPath": node.host_path, "type": "c", "permissions": "rw"}
                        for node in card_nodes([gpu], presentation)
                    ],
                    "mounts": [
                        {
                            "hostPath": mount.host_path,
                            "containerPath": mount.container_path,
                            "options": ["rbind", "rprivate", "ro"],
                        }
                        for mount in by_path_mounts([gpu], presentation)
                    ],
                },
            }
            # CDI rejects a device without edits; allocations do not name such a card either.
            for gpu in sorted(gpus, key=lambda gpu: gpu.card)
            if gpu.device_nodes
        ],
    }
    return msgspec.json.format(msgspec.json.encode(spec), indent=2).decode() + "\n"


def write_cdi_file(path: Path, text: str) -> None:
    """Replace the file with one of this text, as a whole or not at all. Raises UnwritableCdiFile.

    Runtimes read only files that end in .json or .yaml, so they ignore the unfinished one beside it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text, unfinished=path.with_name(f".{path.name}.new"))
    except OSError as error:
        raise UnwritableCdiFile(path, error) from error


def remove_cdi_file(path: Path) -> None:
    """Remove the file if it exists. Raises UnremovableCdiFile."""
    try:
        remove_file(path)
    except OSError as error:
        raise UnremovableCdiFile(path, error) from error

"""The spec file that tells CDI runtimes what a card of ours consists of."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gas.card_facts import CardFacts
from gas.errors import GasError
from gas.plugin.devices.container_answer import CDI_KIND, Presentation, by_path_mounts, card_nodes
from gas.plugin.files.plain_file import refuse_what_is_none

DEFAULT_PATH = Path("/var/run/cdi/gpu.intel.com-card.json")
CDI_VERSION = "0.5.0"
"""The oldest in which a device node may have another path on the host."""


class UnwritableCdiFile(GasError):
    """The file could not be written. What it held before, if anything, is still there."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"cannot write the CDI file {path}: {error.strerror}; runtimes do not know the cards."
            f" {path.parent} must be a directory of the node that this program may write to"
        )


class CdiFileStays(GasError):
    """The file could not be taken away."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"cannot remove the CDI file {path}: {error.strerror}; remove it by hand")


def cdi_text(gpus: Iterable[CardFacts], presentation: Presentation) -> str:
    """The file's content: one CDI device for each card, with the same nodes and mounts as plain answers have."""
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
            # CDI takes no device without edits; such a card is not named in answers either.
            for gpu in sorted(gpus, key=lambda gpu: gpu.card)
            if gpu.device_nodes
        ],
    }
    return msgspec.json.format(msgspec.json.encode(spec), indent=2).decode() + "\n"


def write_cdi_file(path: Path, text: str) -> None:
    """Put the text in the place of the file, whole or not at all. Raises UnwritableCdiFile.

    Runtimes read only files that end in .json or .yaml, so an unfinished one beside it is never read.
    """
    unfinished = path.with_name(f".{path.name}.new")
    try:
        refuse_what_is_none(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with unfinished.open("w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise UnwritableCdiFile(path, error) from error


def remove_cdi_file(path: Path) -> None:
    """Take the file away; that it is not there is no fault. Raises CdiFileStays."""
    try:
        refuse_what_is_none(path)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise CdiFileStays(path, error) from error

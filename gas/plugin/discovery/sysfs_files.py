"""Read single sysfs files and directories, which may be missing, unreadable, empty, binary or invalid.

Paths are texts: to join hundreds of pathlib's in each scan takes half of its processor time.
"""

import os
from itertools import islice
from pathlib import Path

from gas.values.card_records import MOST_NUMA_NODES
from gas.values.errors import GasError
from gas.values.quoted import quoted

MOST_ENTRIES = 4096  # names in a directory: a few for each card, and more than any card's driver has
_LONGEST = 4096  # bytes: a page, the largest size of a file in sysfs


class UnreadableFile(GasError):
    """The file exists but has no valid content. The message does not name the card."""


def read_start(path: str | Path, size: int, directory: int | None = None) -> bytes:
    """Return at most ``size`` bytes of a file. Never blocks: a pipe reads as an empty file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def read_text(path: str, place: str) -> str | None:
    """Return the text of a file without surrounding whitespace; None if the file does not exist. Raises UnreadableFile.

    ``place`` is the file's name in errors, such as ``"device/vendor"``.
    """
    try:
        text = read_start(path, _LONGEST).decode("ascii", errors="replace").strip()
    except FileNotFoundError as error:
        if Path(path).is_symlink():
            raise UnreadableFile(f"{place} is a dangling link") from error
        return None
    except OSError as error:
        raise UnreadableFile(f"cannot read {place}: {error.strerror}") from error
    if not text:
        raise UnreadableFile(f"{place} is empty")
    return text


def read_number(path: str, place: str) -> int | None:
    """Return a whole number of up to 19 digits; None if the file does not exist. Raises UnreadableFile."""
    if (text := read_text(path, place)) is None:
        return None
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 19:
        return int(text)
    raise UnreadableFile(f"{place}: expected a whole number, found {quoted(text)}")


def read_numa_node(path: str, place: str) -> int | None:
    """Return the NUMA node of a PCI device; None if the kernel states none. Raises UnreadableFile."""
    number = read_number(path, place)
    if number is not None and number >= MOST_NUMA_NODES:
        raise UnreadableFile(f"{place}: expected less than {MOST_NUMA_NODES}, found {number}")
    return number if number is not None and number >= 0 else None


def entries(path: str, place: str) -> tuple[str, ...] | None:
    """Return the names in a directory, sorted; None if the directory does not exist. Raises UnreadableFile.

    Only printable ASCII names, as the kernel creates them, since others could neither be logged nor passed to kubelet.
    """
    try:
        with os.scandir(path) as found:
            names = [each.name for each in islice(found, MOST_ENTRIES + 1)]
    except FileNotFoundError as error:
        if Path(path).is_symlink():
            raise UnreadableFile(f"{place} is a dangling link") from error
        return None
    except OSError as error:
        raise UnreadableFile(f"cannot list {place}: {error.strerror}") from error
    if len(names) > MOST_ENTRIES:
        raise UnreadableFile(f"{place}: expected at most {MOST_ENTRIES} entries, found more; reload the driver")
    return tuple(sorted(name for name in names if name.isascii() and name.isprintable()))


def is_there(path: str) -> bool:
    return os.access(path, os.F_OK)


def device_nodes_of(root: str | Path) -> str:
    """Return the directory of device nodes: the node's ``/dev``, where a container has it mounted, else its own.

    A container that has only ``/dev/dri`` would keep a directory that the kernel has removed, and kubelet would make it
    on nodes without cards.
    """
    return f"{root}/host/dev" if is_there(f"{root}/host/dev") else f"{root}/dev"


def link_target(path: str) -> str | None:
    """Return the target of a symbolic link as it is stored; None for anything else."""
    try:
        return str(Path(path).readlink())
    except OSError:
        return None

"""Parse the fdinfo of an open DRM file: the use that the kernel states for one client of a card.

Source: Documentation/gpu/drm-usage-stats.rst of Linux. Files that a process has open several times, or shares with
another process, are one client; `Client.pci_address` and `Client.id` identify it on a node.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gas.values.card_facts import MOST_MEMORY
from gas.values.errors import GasError
from gas.values.quoted import quoted

LARGEST = 16 * 1024  # Bytes to read of one file. Drivers write 1 to 3 KiB.

_USED = re.compile(
    rb"^drm-(pdev|client-id|(?:resident|memory)-(?:vram|local)[0-9]*|(?:engine|engine-capacity|cycles|total-cycles)-[^:\n]*)"
    rb":[ \t]*([^\n]*?)[ \t]*\n",
    re.MULTILINE,
)
"""Lines that are used. The regions on the card itself are ``vram0`` (xe), ``local0`` (i915) and ``vram`` (amdgpu);
others are memory of the node, or reserved by the driver."""

_RESIDENT, _MEMORY = b"resident-", b"memory-"
_CAPACITY, _ENGINE = b"engine-capacity-", b"engine-"
_TOTAL_CYCLES, _CYCLES = b"total-cycles-", b"cycles-"
_UNITS = {b"": 1, b"KiB": 2**10, b"MiB": 2**20, b"GiB": 2**30}
_MOST_DIGITS = 19
_MOST_ENGINES = 1000
_PCI_ADDRESS = re.compile(rb"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ENGINE_NAME = re.compile(rb"[a-z][a-z0-9_-]{0,31}")


class MalformedFdinfo(GasError):
    """The file is that of a card, but has no valid content."""


class EngineTime(NamedTuple):
    """The time for which a client kept the engines of one class busy. It may fall for a moment, then it catches up."""

    busy: int  # nanoseconds or, if there is a ``total``, cycles
    total: int | None = None  # cycles of the card's clock, busy or not
    capacity: int = 1  # number of engines of the class, at least 1


@dataclass(frozen=True, slots=True)
class Client:
    pci_address: str  # of the card; of a client that the driver states in another way, the card's name
    id: int  # unique among the clients of the card
    memory: int = 0  # bytes of the card's own memory that hold its buffers
    # by the driver's name of the class: ``rcs`` (xe), ``render`` (i915)
    engines: Mapping[str, EngineTime] = field(default_factory=dict)


def is_drm(content: bytes) -> bool:
    """Return whether this is the fdinfo of a DRM file, of any driver."""
    return b"\ndrm-driver:" in content or content.startswith(b"drm-driver:")


def parse_fdinfo(content: bytes) -> Client | None:
    """Return the client; None if the file is not a client of a PCI card, or the driver does not identify clients.

    Raises MalformedFdinfo if anything that is used is invalid, stated twice or cut off, since a part of a number is a
    wrong number.
    """
    if not is_drm(content):
        return None
    if not content.endswith(b"\n"):
        raise MalformedFdinfo("fdinfo is cut off in the middle of a line")
    lines = _USED.findall(content)
    fields: dict[bytes, bytes] = dict(lines)
    if len(fields) < len(lines):
        twice = next(key for key, count in Counter(key for key, _ in lines).items() if count > 1)
        raise MalformedFdinfo(f"fdinfo states {_name(twice)} twice")
    if b"pdev" not in fields or b"client-id" not in fields:
        return None
    address = fields[b"pdev"].lower()
    if _PCI_ADDRESS.fullmatch(address) is None:
        raise MalformedFdinfo(f"drm-pdev: expected a PCI address such as 0000:03:00.0, found {_text(address)}")
    identity = _number(b"client-id", fields[b"client-id"])
    return Client(address.decode(), identity, _local_memory(fields), _engines(fields))


def _local_memory(fields: Mapping[bytes, bytes]) -> int:
    """Return the resident bytes on the card. ``drm-memory-`` is an older name for the same; some drivers state both."""
    resident = [key for key in fields if key.startswith(_RESIDENT)]
    return sum(_bytes(key, fields[key]) for key in resident or [key for key in fields if key.startswith(_MEMORY)])


def _engines(fields: Mapping[bytes, bytes]) -> dict[str, EngineTime]:
    engines: dict[str, EngineTime] = {}
    for key, value in fields.items():
        total: int | None = None
        if key.startswith(_CYCLES):
            name = key.removeprefix(_CYCLES)
            if (total_text := fields.get(_TOTAL_CYCLES + name)) is None:
                continue  # a driver with drm-maxfreq: its cycles state no share of the time
            busy, total = _number(key, value), _number(_TOTAL_CYCLES + name, total_text)
        elif key.startswith(_ENGINE) and not key.startswith(_CAPACITY):
            name = key.removeprefix(_ENGINE)
            number, _, unit = value.partition(b" ")
            if unit.strip() != b"ns":
                raise MalformedFdinfo(f"{_name(key)}: expected nanoseconds such as 5 ns, found {_text(value)}")
            busy = _number(key, number)
        else:
            continue
        if _ENGINE_NAME.fullmatch(name) is None:
            raise MalformedFdinfo(f"fdinfo names an engine {_text(name)}")
        # If a driver states both nanoseconds and cycles of a class, the cycles count.
        if total is not None or name.decode() not in engines:
            engines[name.decode()] = EngineTime(busy, total, _capacity(fields, name))
    return engines


def _capacity(fields: Mapping[bytes, bytes], name: bytes) -> int:
    key = _CAPACITY + name
    capacity = _number(key, fields[key]) if key in fields else 1
    if not 1 <= capacity <= _MOST_ENGINES:
        raise MalformedFdinfo(f"{_name(key)}: expected 1 to {_MOST_ENGINES} engines, found {capacity}")
    return capacity


def _bytes(key: bytes, value: bytes) -> int:
    number, _, unit = value.partition(b" ")
    if (factor := _UNITS.get(unit.strip())) is None:
        raise MalformedFdinfo(f"{_name(key)}: expected bytes, KiB or MiB, found {_text(value)}")
    if (amount := _number(key, number) * factor) > MOST_MEMORY:
        raise MalformedFdinfo(f"{_name(key)}: expected at most {MOST_MEMORY} bytes, found {_text(value)}")
    return amount


def _number(key: bytes, value: bytes) -> int:
    if not value.isdigit() or len(value) > _MOST_DIGITS:
        raise MalformedFdinfo(
            f"{_name(key)}: expected a whole number of at most {_MOST_DIGITS} digits, found {_text(value)}"
        )
    return int(value)


def _name(key: bytes) -> str:
    return _text(b"drm-" + key)


def _text(value: bytes) -> str:
    return quoted(value.decode("ascii", errors="replace"))

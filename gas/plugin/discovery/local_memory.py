"""Find how much memory of its own a card has, from the first source that states it. Source: contract P1.8.

1. Files in sysfs of Intel's out-of-tree drivers: ``lmem_total_bytes`` (i915) and ``physical_vram_size_bytes`` (xe).
2. The driver, asked through the render node: on stock kernels the only source that is right for every card.
3. The PCI window (BAR 2) through which the processor sees the card's memory, on models where it states the amount.
4. ``GPU_MEMORY_OVERRIDE``.

A file in sysfs with 0 bytes states nothing.

An integrated GPU has no memory of its own. It uses the node's, which kubelet counts and gives to pods as ``memory``, so
publishing it as the card's would promise it twice. Only the administrator's override gives such a GPU an amount. Its
driver knows that it is integrated; if the driver cannot be asked, the PCI device id counts. The PCI address does not: a
card with memory of its own may be at the address of integrated GPUs in a virtual machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gas.plugin.daemon_thread import start_daemon_thread
from gas.plugin.discovery.card_models import is_integrated
from gas.plugin.discovery.render_node import CannotAsk, Query, memory_regions
from gas.plugin.discovery.sysfs_files import UnreadableFile, is_there, read_number, read_text
from gas.values.card_facts import MOST_MEMORY, MemorySource
from gas.values.quoted import quoted

FULL_WINDOW_MODELS = frozenset({"0x56a0", "0x56a1", "0x56a2", "0x56c0"})
"""PCI device ids of models with 8 or 16 GiB of memory: Arc A770, A750 and A580, and Flex 170.

The size of a PCI window is a power of two, so it states the memory of such models only: Arc A380 has 6 GiB behind a
window of 8 GiB, and Arc B580 has 12 GiB behind one of 16 GiB.
"""

WINDOW_PERCENT = 99
"""Percent of the window that counts: the driver keeps a part of the memory, 1/256 of it for compression alone."""

REPLY_WITHIN = 2.0
"""Seconds to wait for a driver. A card that is asleep wakes up in less."""

_SMALLEST_WINDOW = 2**30
"""Bytes. A smaller window never shows all the memory of a card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPlace:
    """Where to read about a card, and what is known of it already.

    directory    its directory in ``/sys/class/drm``
    tiles        number of its tiles
    tile_names   names of the tiles' directories in ``device``, which xe has
    render_node  its render node under ``/dev/dri``; None if it has none
    """

    directory: Path
    driver: str
    device_id: str
    pci_address: str
    tiles: int
    tile_names: tuple[str, ...]
    render_node: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """How much memory a card has.

    amount    bytes of the whole card that pods may use; None if it is unknown, shared or completely reserved
    size      bytes of the whole card, with what is reserved; None if neither sysfs nor the driver states it
    fault     why it is unknown and what to do; empty if it is known
    unread    whether a source failed that may have worked before, so that an earlier amount is better than this one
    """

    amount: int | None
    source: MemorySource
    size: int | None = None
    fault: str = ""
    unread: bool = False


class _Question(NamedTuple):
    """A question to the driver of a card, which a thread of its own waits for."""

    card: CardPlace
    reply: Future[tuple[int, ...]]


class MemoryReader:
    """Read the memory of cards. Each driver is asked until it replies, then its reply is remembered.

    A driver that does not reply in time hides no other card: its thread waits on, and a later `read` finds the reply.

    override  bytes of a card whose memory no other source states
    reserved  bytes of a card that pods do not get; not subtracted from the override
    query     asks a driver; may block as long as a card does not respond
    within    seconds to wait for a driver
    """

    def __init__(
        self,
        override: int | None = None,
        reserved: int = 0,
        query: Query = memory_regions,
        *,
        within: float = REPLY_WITHIN,
    ) -> None:
        self._override = override
        self._reserved = reserved
        self._query = query
        self._within = within
        self._replies: dict[Path, tuple[CardPlace, tuple[int, ...]]] = {}
        self._questions: dict[Path, _Question] = {}

    def read(self, card: CardPlace, report: Callable[[str], None]) -> Memory:
        """Return the memory of a card. ``report`` takes a sentence about each problem."""
        failures: list[str] = []
        reasons: list[str] = []
        for source, read in (
            (MemorySource.SYSFS, _from_sysfs),
            (MemorySource.QUERY, self._from_driver),
            (MemorySource.BAR, _from_window),
        ):
            try:
                found = read(card)
            except UnreadableFile as error:
                failures.append(str(error))
                continue
            except CannotAsk as error:
                reasons.append(str(error))
                continue
            if found == 0 and source is MemorySource.QUERY:
                return self._of_integrated()
            if source is MemorySource.SYSFS and not found:
                reasons.append("sysfs does not state it" if found is None else "sysfs states 0 bytes")
            elif found is not None:
                for failure in failures:
                    report(f"{failure}; its memory is known from another source: {source}")
                return Memory(amount=self._left(found, report), source=source, size=found)
        return self._without_source(card, failures, reasons, report)

    def forget_others(self, directories: Collection[Path]) -> None:
        """Forget the replies about all cards but these: another card may come in the place of one that is gone."""
        for directory in self._replies.keys() - set(directories):
            del self._replies[directory]
        for directory in self._questions.keys() - set(directories):
            del self._questions[directory]

    def _from_driver(self, card: CardPlace) -> int | None:
        """Return the bytes of all tiles; 0 for an integrated GPU. Raises CannotAsk, UnreadableFile."""
        if card.render_node is None:
            raise CannotAsk("it has no render node under /dev/dri")
        asked, reply = self._replies.get(card.directory, (None, ()))
        if asked != card:
            reply = self._ask(card, card.render_node)
            self._replies[card.directory] = (card, reply)
        return _checked(sum(reply), "memory regions")

    def _ask(self, card: CardPlace, node: Path) -> tuple[int, ...]:
        """Return the driver's reply, also one to an earlier question. Raises its error; UnreadableFile without a reply.

        A driver that has not replied to an earlier question is neither asked nor waited for again.
        """
        question = self._questions.get(card.directory)
        if question is None or (question.card != card and question.reply.done()):
            reply = start_daemon_thread(partial(self._query, node, card.driver), name="driver")
            question = self._questions[card.directory] = _Question(card, reply)
            wait((question.reply,), self._within)
        if question.card != card or not question.reply.done():
            raise UnreadableFile(f"the driver has not replied on /dev/dri/{node.name} within {self._within:g} s")
        del self._questions[card.directory]
        return question.reply.result()

    def _left(self, amount: int, report: Callable[[str], None]) -> int | None:
        """Return what pods may use; None if it is nothing."""
        left = amount - self._reserved
        if left < 0:
            report(f"{self._reserved} bytes are reserved of the {amount} it has; pods cannot request its memory")
        return left if left > 0 else None

    def _of_integrated(self) -> Memory:
        if self._override is not None:
            return Memory(amount=self._override, source=MemorySource.OVERRIDE)
        return Memory(amount=None, source=MemorySource.SHARED)

    def _without_source(
        self, card: CardPlace, failures: list[str], reasons: list[str], report: Callable[[str], None]
    ) -> Memory:
        """Return the memory of a card of which no source states it.

        failures  sources that exist and could not be read
        reasons   why no other source states it
        """
        if not failures and (self._override is not None or is_integrated(card.device_id)):
            return self._of_integrated()
        instead = "is unknown" if self._override is None else f"counts as {self._override} bytes"
        for failure in failures:
            report(f"{failure}; unless it was read before, the memory {instead}")
        if self._override is not None:
            return Memory(amount=self._override, source=MemorySource.OVERRIDE, unread=True)
        fault = (
            f"its memory is unknown: {', and '.join(failures or reasons)}; pods that "
            "request memory do not get this card; let the plugin open its render node, or set GPU_MEMORY_OVERRIDE"
        )
        if not failures:
            report(fault)
        return Memory(amount=None, source=MemorySource.UNKNOWN, fault=fault, unread=bool(failures))


def _from_sysfs(card: CardPlace) -> int | None:
    """Return the bytes of all tiles that Intel's out-of-tree drivers state. Raises UnreadableFile."""
    if (per_tile := read_number(card.directory / "lmem_total_bytes", "lmem_total_bytes")) is not None:
        return _checked(per_tile * card.tiles, "lmem_total_bytes")
    amounts: list[int | None] = []
    for name in card.tile_names:
        place = f"device/{name}/physical_vram_size_bytes"
        amount = read_number(card.directory / place, place)
        amounts.append(None if amount is None else _checked(amount, place))
    known = [amount for amount in amounts if amount is not None]
    if not known:
        return None
    if len(known) < len(amounts):
        raise UnreadableFile(f"only {len(known)} of {len(amounts)} tiles have physical_vram_size_bytes")
    return _checked(sum(known), "physical_vram_size_bytes")


def _from_window(card: CardPlace) -> int | None:
    """Return the bytes of the PCI window if it shows all of the card's memory; else None. Raises UnreadableFile.

    ``resource2_resize`` (Linux 6.1 and later) lists the sizes that the card's window can have, as a mask in which bit 0
    stands for 1 MiB. The largest one shows all of the memory. The window of a virtual function says nothing.
    """
    device = card.directory / "device"
    if card.device_id not in FULL_WINDOW_MODELS or is_there(device / "physfn"):
        return None
    windows = read_text(device / "resource", "device/resource")
    sizes = read_text(device / "resource2_resize", "device/resource2_resize")
    if windows is None or sizes is None:
        return None
    line = windows.splitlines()[2:3]
    try:
        first, last, _ = (int(number, 16) for number in " ".join(line).split())
        largest = 2 ** (int(sizes, 16).bit_length() - 1 + 20)
    except ValueError:
        raise UnreadableFile(f"device/resource: expected a PCI window, found {quoted(' '.join(line))}") from None
    window = last - first + 1
    if window < _SMALLEST_WINDOW or window != largest:
        return None
    return _checked(window * WINDOW_PERCENT // 100, "device/resource")


def _checked(amount: int, place: str) -> int:
    if not 0 <= amount <= MOST_MEMORY:
        raise UnreadableFile(f"{place}: expected the bytes of a tile, found {amount}")
    return amount

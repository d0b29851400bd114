"""Find how much memory of its own a card has, from the first source that states it. Source: contract P1.8.

1. Files in sysfs of Intel's out-of-tree drivers: ``lmem_total_bytes`` (i915) and ``physical_vram_size_bytes`` (xe).
2. The driver, asked through the render node: on stock kernels the only source that is right for every card.
3. The PCI window (BAR 2) through which the processor sees the card's memory, on models where it states the amount.
4. ``GPU_MEMORY_OVERRIDE``.
5. `MEMORY_OF_MODELS`.

A file in sysfs with 0 bytes states nothing.

An integrated GPU has no memory of its own. It uses the node's, which kubelet counts and gives to pods as ``memory``, so
publishing it as the card's would promise it twice. Only the administrator's override gives such a GPU an amount. Its
driver knows that it is integrated; if the driver cannot be asked, the PCI device id counts. The PCI address does not: a
card with memory of its own may be at the address of integrated GPUs in a virtual machine.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from gas.plugin.daemon_thread import NoReply, Questions
from gas.plugin.discovery.card_models import is_integrated
from gas.plugin.discovery.card_source import MEMORY_FIELDS, CardRules
from gas.plugin.discovery.render_node import CannotAsk, Query
from gas.plugin.discovery.sysfs_files import UnreadableFile, device_nodes_of, is_there, read_number, read_text
from gas.values.card_facts import MOST_MEMORY, CardFacts, MemorySource
from gas.values.cards import Card
from gas.values.quoted import quoted

FULL_WINDOW_MODEL = "0x56a0"
"""PCI device id of Arc A770, which has 8 or 16 GiB of memory. The size of a PCI window is a power of two, so it says
nothing of models with other sizes, or that can check their memory (ECC): Arc B580 has 12 GiB behind one of 16 GiB, and
Flex 170 with ECC less than the 16 GiB of its window."""

_MIB = 2**20
MEMORY_OF_MODELS = {
    **dict.fromkeys(("0x0bd5", "0x0bd6"), 129761 * _MIB),  # Data Center GPU Max 1550, 128 GiB on two tiles
    **dict.fromkeys(("0x0bd9", "0x0bda", "0x0bdb"), 48660 * _MIB),  # Data Center GPU Max 1100, 48 GiB
    FULL_WINDOW_MODEL: 8110 * _MIB,  # Arc A770, the smaller of 8 and 16 GiB, where its window is too small to tell
    "0x56a1": 8110 * _MIB,  # Arc A750, 8 GiB
    "0x56a2": 8110 * _MIB,  # Arc A580, 8 GiB
    "0x56a5": 6082 * _MIB,  # Arc A380, 6 GiB
    "0x56a6": 4055 * _MIB,  # Arc A310, 4 GiB
    "0x56c0": 14090 * _MIB,  # Data Center GPU Flex 170, 16 GiB
    "0x56c1": 5283 * _MIB,  # Data Center GPU Flex 140, 6 GiB for each of its two GPUs
    "0xe20b": 12165 * _MIB,  # Arc B580, 12 GiB
    "0xe20c": 10137 * _MIB,  # Arc B570, 10 GiB
    "0xe211": 21135 * _MIB,  # Arc Pro B60, 24 GiB
    "0xe212": 14090 * _MIB,  # Arc Pro B50, 16 GiB
}
"""Bytes by PCI device id, of models that are sold with one size of memory (all but one), by Intel's specifications.

99 percent of it, or 86 of Flex and Pro models, which can check their memory (ECC), for an eighth of it: Intel's XPU
Manager shows 12216 MiB for an Arc B580, and 14248 MiB for a Flex 170 with ECC. That of Max models always checks itself.
"""

WINDOW_PERCENT = 99  # percent of the window that counts: the driver keeps a part, 1/256 of it for compression alone
REPLY_WITHIN = 2.0  # Seconds to wait for a driver. A card that is asleep wakes up in less.
_SMALLEST_WINDOW = 2**30  # Bytes. A smaller window never shows all the memory of a card.

_Identity = tuple[Card, str, str, str]  # a card, its driver, device id and PCI address


class MemoryReader:
    """Read the memory of cards. Each driver is asked until it replies, then its reply is remembered.

    A driver that does not reply within ``within`` seconds hides no other card: its thread waits on, and a later `read`
    finds the reply.
    """

    def __init__(self, root: Path, rules: CardRules, query: Query, *, within: float) -> None:
        self._root = root
        self._rules = rules
        self._query = query
        self._within = within
        self._replies: dict[_Identity, tuple[int, ...]] = {}
        self._questions: Questions[tuple[_Identity, tuple[int, ...]]] = Questions("driver")

    def read(self, gpu: CardFacts, tile_names: Collection[str], report: Callable[[str], None]) -> CardFacts:
        """Return the card with its memory.

        ``tile_names`` are the names of the tiles' directories in ``device``, which xe has; ``report`` takes a sentence
        about each problem.
        """
        failures: list[str] = []
        reasons: list[str] = []
        directory = f"{self._root}/sys/class/drm/{gpu.card}"
        sources: tuple[tuple[MemorySource, Callable[[], int | None]], ...] = (
            (MemorySource.SYSFS, lambda: _from_sysfs(directory, gpu.tiles, tile_names)),
            (MemorySource.QUERY, lambda: self._from_driver(gpu)),
            (MemorySource.BAR, lambda: _from_window(f"{directory}/device", gpu.device_id)),
        )
        for source, read in sources:
            try:
                found = read()
            except UnreadableFile as error:
                failures.append(str(error))
                continue
            except CannotAsk as error:
                reasons.append(str(error))
                continue
            if found == 0 and source is MemorySource.QUERY:
                return self._of_integrated(gpu)
            if source is MemorySource.SYSFS and not found:
                reasons.append("sysfs does not state it" if found is None else "sysfs states 0 bytes")
            elif found is not None:
                for failure in failures:
                    report(f"{failure}; its memory is known from another source: {source}")
                usable = self._rules.usable(found, report)
                return replace(gpu, memory=usable, memory_source=source, memory_size=found)
        return self._without_source(gpu, failures, reasons, report)

    def forget_others(self, cards: Collection[Card]) -> None:
        """Forget the replies about all other cards, since another card may take the place of one that is gone."""
        self._replies = {asked: reply for asked, reply in self._replies.items() if asked[0] in cards}

    def _from_driver(self, gpu: CardFacts) -> int:
        """Return the bytes of all tiles; 0 for an integrated GPU. Raises CannotAsk, UnreadableFile."""
        node = next((name for name in gpu.device_nodes if name.startswith("renderD")), None)
        if node is None:
            raise CannotAsk("it has no render node under /dev/dri")
        identity = (gpu.card, gpu.driver, gpu.device_id, gpu.pci_address)
        while identity not in self._replies:
            is_new = self._questions.ask(
                node, lambda: (identity, self._query(Path(device_nodes_of(self._root), "dri", node), gpu.driver))
            )
            try:
                # A driver that has not replied to an earlier question is not waited for again.
                asked, reply = self._questions.reply(node, time.monotonic() + self._within if is_new else 0.0)
            except NoReply:
                raise UnreadableFile(
                    f"the driver has not replied on /dev/dri/{node} within {self._within:g} s"
                ) from None
            if asked == identity:  # else it is a late reply about an earlier card in this place
                self._replies[identity] = reply
        return _checked(sum(self._replies[identity]), "memory regions")

    def _of_integrated(self, gpu: CardFacts) -> CardFacts:
        override = self._rules.memory_override
        source = MemorySource.SHARED if override is None else MemorySource.OVERRIDE
        return replace(gpu, memory=override, memory_source=source)

    def _without_source(
        self, gpu: CardFacts, failures: list[str], reasons: list[str], report: Callable[[str], None]
    ) -> CardFacts:
        """Return a card whose memory no source states: ``failures`` are unreadable sources, ``reasons`` other ones."""
        override = self._rules.memory_override
        if not failures and (override is not None or is_integrated(gpu.device_id)):
            return self._of_integrated(gpu)
        is_part = is_there(f"{self._root}/sys/class/drm/{gpu.card}/device/physfn")
        if not failures and not is_part and (known := MEMORY_OF_MODELS.get(gpu.device_id)):
            return replace(gpu, memory=self._rules.usable(known, report), memory_source=MemorySource.TABLE)
        instead = "is unknown" if override is None else f"counts as {override} bytes"
        for failure in failures:
            report(f"{failure}; unless it was read before, the memory {instead}")
        if failures:
            gpu = replace(gpu, unread=gpu.unread.union(MEMORY_FIELDS))
        if override is not None:
            return self._of_integrated(gpu)
        fault = (
            f"its memory is unknown: {', and '.join(failures or reasons)}; pods that "
            "request memory do not get this card; let the plugin open its render node, or set GPU_MEMORY_OVERRIDE"
        )
        if not failures:
            report(fault)
        return replace(gpu, memory_source=MemorySource.UNKNOWN, memory_fault=fault)


def _from_sysfs(directory: str, tiles: int, tile_names: Collection[str]) -> int | None:
    """Return the bytes of all tiles as Intel's out-of-tree drivers state them. Raises UnreadableFile."""
    if (per_tile := read_number(f"{directory}/lmem_total_bytes", "lmem_total_bytes")) is not None:
        return _checked(per_tile * tiles, "lmem_total_bytes")
    amounts: list[int | None] = []
    for name in tile_names:
        place = f"device/{name}/physical_vram_size_bytes"
        amount = read_number(f"{directory}/{place}", place)
        amounts.append(None if amount is None else _checked(amount, place))
    known = [amount for amount in amounts if amount is not None]
    if not known:
        return None
    if len(known) < len(amounts):
        raise UnreadableFile(f"only {len(known)} of {len(amounts)} tiles have physical_vram_size_bytes")
    return _checked(sum(known), "physical_vram_size_bytes")


def _from_window(device: str, device_id: str) -> int | None:
    """Return the bytes of the PCI window if it shows all of the card's memory; else None. Raises UnreadableFile.

    ``resource2_resize`` (Linux 6.1 and later) lists the sizes that the card's window can have, as a mask in which bit 0
    stands for 1 MiB. The largest one shows all of the memory. The window of a virtual function says nothing.
    """
    if device_id != FULL_WINDOW_MODEL or is_there(f"{device}/physfn"):
        return None
    windows = read_text(f"{device}/resource", "device/resource")
    sizes = read_text(f"{device}/resource2_resize", "device/resource2_resize")
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

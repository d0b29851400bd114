"""The node's labels about its cards. Source: contract P5.1 to P5.4."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gas.card_facts import CardFacts
from gas.intel import names
from gas.intel.split_label import split_value

_LONGEST_VALUE = 63
_CONTINUED = (names.GPU_NUMBERS, names.NUMA_GPU_MAP, names.PCI_GROUPS)
_LABEL = re.compile(
    f"{re.escape(names.CARDS)}|(?:{'|'.join(map(re.escape, _CONTINUED))})(?:[2-9]|[1-9][0-9]{{1,8}})?", re.ASCII
)


def node_labels(cards: Sequence[CardFacts], *, pci_grouping_level: int) -> dict[str, str]:
    """Return all labels that describe the node's cards, continuations included; none if it has no cards.

    pci_grouping_level  how many folders of their sysfs paths cards of one group share; 0: no groups are written

    Unhealthy cards are named too: the place of a card in ``gpu-numbers`` is the number by which links know it.
    """
    if not cards:
        return {}
    labels = {names.CARDS: _card_names(cards)}
    labels |= split_value(names.GPU_NUMBERS, _numbers(cards))
    if numa := _numa_gpu_map(cards):
        labels |= split_value(names.NUMA_GPU_MAP, numa)
    if groups := _pci_groups(cards, pci_grouping_level):
        labels |= split_value(names.PCI_GROUPS, groups)
    return labels


def is_node_label(name: str) -> bool:
    """Return whether `node_labels` writes a label of this name, so that an outdated one is removed.

    Names are exact (and numbered continuations), so that labels of others under the same prefix, such as links found
    by telemetry, stay.
    """
    return _LABEL.fullmatch(name) is not None


def _card_names(gpus: Iterable[CardFacts]) -> str:
    """Return as many whole names as fit: this old label has no continuation, and half a name is another card's."""
    text = ""
    for gpu in gpus:
        longer = f"{text}.{gpu.card}" if text else str(gpu.card)
        if len(longer) > _LONGEST_VALUE:
            break
        text = longer
    return text


def _numbers(gpus: Iterable[CardFacts]) -> str:
    return ".".join(str(int(gpu.card)) for gpu in gpus)


def _numa_gpu_map(gpus: Iterable[CardFacts]) -> str:
    """``0-0.1_1-2.3``; empty when no card belongs to a NUMA node."""
    groups: dict[int, list[CardFacts]] = {}
    for gpu in gpus:
        if gpu.numa_node is not None:
            groups.setdefault(gpu.numa_node, []).append(gpu)
    return "_".join(f"{node}-{_numbers(group)}" for node, group in sorted(groups.items()))


def _pci_groups(gpus: Iterable[CardFacts], level: int) -> str:
    """``0.1_2.3.4``; a card that shares its folders with no other is a group of one."""
    groups: dict[tuple[str, ...], list[CardFacts]] = {}
    for gpu in gpus:
        if level > 0 and gpu.pci_path:
            groups.setdefault(gpu.pci_path[:level], []).append(gpu)
    return "_".join(map(_numbers, groups.values()))

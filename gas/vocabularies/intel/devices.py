"""Describe the node's cards in Intel's names (contract P5.1 to P5.5), and the tiles of a container.

Kubelet knows the count resources ``i915`` and ``xe`` from the plugin's device lists alone, so they have no sums here.
``ZE_AFFINITY_MASK`` limits the user-space driver to the tiles that were decided for a container.
"""

import re
from collections.abc import Iterable, Sequence

from gas.decision.annotations import MalformedAnnotation, read_choice
from gas.decision.names import CONTAINER_TILES, INIT_CONTAINER_TILES
from gas.objects.stored import HIERARCHY, Pod
from gas.values.amounts import MEMORY_MAX, MILLICORES, MILLICORES_OF_A_CARD
from gas.values.card_facts import CardFacts
from gas.vocabularies.intel import names
from gas.vocabularies.intel.need import read_booked_need
from gas.vocabularies.intel.node_texts import LONGEST_VALUE, format_card_capacity, split_value
from gas.vocabularies.pod_parts import need_facts
from gas.vocabularies.protocol import BadNeed

SUMMED_RESOURCES = tuple(names.PREFIX + name for name in (MILLICORES, MEMORY_MAX, names.TILES))
"""Full names of all resources that `node_resources` writes."""

_CONTINUED = (names.GPU_NUMBERS, names.NUMA_GPU_MAP, names.PCI_GROUPS)
LABEL = re.compile(
    f"{re.escape(names.CARDS)}|(?:{'|'.join(map(re.escape, _CONTINUED))})(?:[2-9]|[1-9][0-9]{{1,8}})?", re.ASCII
)
"""The labels that `node_labels` writes, with their continuations; other programs write others under the same prefix."""


def node_labels(cards: Sequence[CardFacts], *, pci_grouping_level: int) -> dict[str, str]:
    """Return all labels that describe the node's cards, continuations included; none if it has no cards.

    Unhealthy cards are named too: links identify a card by its position in ``gpu-numbers``.
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


def _card_names(gpus: Iterable[CardFacts]) -> str:
    """Return as many whole names as fit; this old label has no continuation, and half a name is another card's."""
    text = ""
    for gpu in gpus:
        longer = f"{text}.{gpu.card}" if text else str(gpu.card)
        if len(longer) > LONGEST_VALUE:
            break
        text = longer
    return text


def _numbers(gpus: Iterable[CardFacts]) -> str:
    return ".".join(str(int(gpu.card)) for gpu in gpus)


def _numa_gpu_map(gpus: Iterable[CardFacts]) -> str:
    """Return ``0-0.1_1-2.3``, or an empty text if no card belongs to a NUMA node."""
    groups: dict[int, list[CardFacts]] = {}
    for gpu in gpus:
        if gpu.numa_node is not None:
            groups.setdefault(gpu.numa_node, []).append(gpu)
    return "_".join(f"{node}-{_numbers(group)}" for node, group in sorted(groups.items()))


def _pci_groups(gpus: Iterable[CardFacts], level: int) -> str:
    """Return ``0.1_2.3.4``; a card that shares its folders with no other card is a group of one."""
    groups: dict[tuple[str, ...], list[CardFacts]] = {}
    for gpu in gpus:
        if level > 0 and gpu.pci_path:
            groups.setdefault(gpu.pci_path[:level], []).append(gpu)
    return "_".join(map(_numbers, groups.values()))


def node_resources(cards: Sequence[CardFacts]) -> dict[str, int]:
    """Return the node's sums by full resource name, without sums of 0 and without unhealthy cards; memory in bytes."""
    sums = dict.fromkeys(SUMMED_RESOURCES, 0)
    for gpu in cards:
        for name, amount in _card_amounts(gpu, shared_dev_num=0).items():
            sums[names.PREFIX + name] += amount
    return {name: amount for name, amount in sums.items() if amount}


def card_capacity(cards: Sequence[CardFacts], *, shared_dev_num: int) -> str | None:
    """Return the text of the annotation ``gas-card-capacity``, or None if all cards are alike.

    Without the annotation, each card has an even share of each sum. It lists every card with every resource of which
    cards have different amounts; the amount is 0 for a card that has none, such as an unhealthy one or one of the other
    driver.
    """
    amounts = {gpu.card: _card_amounts(gpu, shared_dev_num=shared_dev_num) for gpu in cards}
    resources = sorted({name for of_card in amounts.values() for name in of_card})
    unlike = [name for name in resources if len({of_card.get(name, 0) for of_card in amounts.values()}) > 1]
    if not unlike:
        return None
    return format_card_capacity(
        {card: {name: of_card.get(name, 0) for name in unlike} for card, of_card in amounts.items()}
    )


def _card_amounts(gpu: CardFacts, *, shared_dev_num: int) -> dict[str, int]:
    """Return what one card has, by resource name without prefix; nothing while it is unhealthy."""
    if not gpu.healthy:
        return {}
    amounts = {
        gpu.driver: shared_dev_num,
        MILLICORES: MILLICORES_OF_A_CARD,
        MEMORY_MAX: gpu.memory or 0,
        names.TILES: gpu.tiles,
    }
    return {name: amount for name, amount in amounts.items() if amount}


AFFINITY_MASK = "ZE_AFFINITY_MASK"
_COMPOSITE = "COMPOSITE"


def container_mask(pod: Pod, container: str, cards: Sequence[CardFacts]) -> str | None:
    """Return the mask for a container that has these cards; None when it must not be set.

    With cards other than decided there is no mask: their tiles were not decided.
    """
    if not (pod.annotations.get(CONTAINER_TILES) or pod.annotations.get(INIT_CONTAINER_TILES)):
        return None  # the usual case, decided before the pod's need is read while kubelet waits
    started = [*(pod.spec.init_containers or ()), *(pod.spec.containers or ())]
    index = next((index for index, each in enumerate(started) if each.name == container), None)
    try:
        choice = read_choice(pod, read_booked_need(need_facts(pod)))
    except (BadNeed, MalformedAnnotation):
        return None
    if choice is None or index is None:
        return None
    decided = choice.containers[index]
    tiles_of = {each.card: each.tiles for each in cards}
    if tiles_of.keys() != set(decided.cards):
        return None
    return affinity_mask(decided.tiles, [tiles_of[card] for card in decided.cards], started[index].variable(HIERARCHY))


def affinity_mask(tiles: Sequence[Sequence[int]], tiles_of_cards: Sequence[int], hierarchy: str | None) -> str | None:
    """Return the value of the variable, or None when it must not be set (contract P4.1 to P4.4).

    With COMPOSITE a device is a card, and ``1.0`` is tile 0 of the second card. Otherwise, with FLAT (the driver's
    default) and COMBINED, a device is a tile, and tiles are counted through all cards. There is no mask without decided
    tiles, where no card has more than one tile, or where a card does not have a decided tile: a mask that names other
    tiles would be worse than none.

    tiles           the tiles decided, for each card of the container in the order of its annotation
    tiles_of_cards  how many tiles each of the same cards has
    hierarchy       the container's ``ZE_FLAT_DEVICE_HIERARCHY``, None when it has none
    """
    if len(tiles) != len(tiles_of_cards) or not any(tiles) or max(tiles_of_cards) <= 1:
        return None
    if any(tile >= count for chosen, count in zip(tiles, tiles_of_cards, strict=True) for tile in chosen):
        return None
    if hierarchy == _COMPOSITE:
        return ",".join(f"{position}.{tile}" for position, chosen in enumerate(tiles) for tile in chosen)
    first = 0
    items: list[str] = []
    for chosen, count in zip(tiles, tiles_of_cards, strict=True):
        items += [str(first + tile) for tile in chosen]
        first += count
    return ",".join(items)

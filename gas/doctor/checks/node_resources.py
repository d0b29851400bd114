"""Check that a node's resources agree with the cards that its labels name."""

from __future__ import annotations

from collections.abc import Iterator

from configurator.scheduler_configuration import CARD_RESOURCES
from gas.doctor.findings import Finding, kubectl, kubectl_pods_on, ok, problem, warning
from gas.doctor.gpus import gpu_amounts, gpu_nodes
from gas.doctor.snapshot import Snapshot
from gas.doctor.spoken import spoken_vocabularies
from gas.objects.stored import DetailedNode
from gas.placement.inventory import Inventory
from gas.values.amounts import MEMORY_MAX, MILLICORES, MILLICORES_OF_A_CARD
from gas.values.card_facts import MemorySource
from gas.values.card_records import ANNOTATION, parse_card_records
from gas.values.cards import Card
from gas.vocabularies.intel import names
from gas.vocabularies.intel.card_labels import read_cards

CHECK = "node-resources"


def check_node_resources(snapshot: Snapshot) -> Iterator[Finding]:
    """Check the resources of every GPU node."""
    vocabularies = spoken_vocabularies(snapshot)
    for node in gpu_nodes(snapshot):
        inventory = vocabularies.facts(node).inventory
        if not inventory.cards:
            continue  # reported with the labels
        faults = [*_counts(node), *_shares(node, inventory), *_memory(node, inventory), *_labels(node, inventory)]
        yield from faults
        if not faults:
            total = ", ".join(f"{amount} {name}" for name, amount in sorted(gpu_amounts(node).items()))
            yield ok(
                CHECK,
                f"node {node.name}",
                f"{len(inventory.cards)} cards with {total} in total" + _integrated(node, inventory),
            )


def _counts(node: DetailedNode) -> Iterator[Finding]:
    where = f"node {node.name}"
    has, could = gpu_amounts(node), gpu_amounts(node, capacity=True)
    look = kubectl_pods_on(node.name, "is there a device plugin, is it ready, and what does its log say?")
    resources = {name.removeprefix(names.PREFIX): name for name in CARD_RESOURCES}
    counted = [name for name in resources if has.get(name) or could.get(name)]
    if not counted:
        yield problem(
            CHECK,
            where,
            "it has labels about cards, but kubelet does not offer any",
            look,
            expected=f"{' or '.join(CARD_RESOURCES)} in status.allocatable",
            found="neither",
        )
    for name in counted:
        allocatable, capacity = has.get(name, 0), could.get(name, 0)
        if allocatable == 0:
            yield problem(
                CHECK,
                where,
                f"kubelet has lost the device plugin for {resources[name]}, or all its cards are unhealthy",
                look,
                expected=f"{capacity} allocatable",
                found="0",
            )
        elif allocatable < capacity:
            yield warning(
                CHECK,
                where,
                f"some devices of {resources[name]} are unhealthy",
                look,
                expected=f"{capacity} allocatable, as the capacity says",
                found=str(allocatable),
            )


def _shares(node: DetailedNode, inventory: Inventory) -> Iterator[Finding]:
    """Check that the amounts of the cards add up to the node's amounts, which kube-scheduler counts."""
    cards = len(inventory.cards)
    for name, total in sorted(gpu_amounts(node).items()):
        if name in names.MONITORING_RESOURCES or not total:
            continue
        of_cards = {card: has.get(name, 0) for card, has in inventory.capacity.items()}
        if (added := sum(of_cards.values())) != total:
            yield warning(
                CHECK,
                f"node {node.name}",
                f"{names.PREFIX}{name} is not the sum of its cards"
                + ("" if names.CARD_CAPACITY in node.annotations else ": it does not divide evenly among them"),
                _show(node, f"labels, annotation {names.CARD_CAPACITY} and allocatable must agree"),
                expected=f"{added}, from {cards} cards",
                found=str(total),
            )
        elif name == MILLICORES and (odd := _odd(of_cards)):
            yield warning(
                CHECK,
                f"node {node.name}",
                "a card has 1000 millicores, but these cards have other amounts",
                _show(node, "and correct it at its source"),
                expected=str(MILLICORES_OF_A_CARD * cards),
                found=", ".join(f"{card}: {amount}" for card, amount in odd.items()),
            )


def _memory(node: DetailedNode, inventory: Inventory) -> Iterator[Finding]:
    """Check that cards in use have memory, except integrated GPUs, by the source that the plugin has recorded."""
    by_source = _without_memory(node, inventory)
    by_source.pop(MemorySource.SHARED, None)
    if cards := by_source.pop(MemorySource.UNKNOWN, None):
        yield _missing_memory(
            node,
            cards,
            "the device plugin does not know how much memory they have",
            kubectl("describe", "node", node.name, note="the event GPUMemoryUnknown says why"),
            "# let the plugin open render nodes, see docs/plugin.md, or set GPU_MEMORY_OVERRIDE",
        )
    if cards := by_source.pop("", None):
        yield _missing_memory(
            node,
            cards,
            "the device plugin does not know how much memory they have, or they are integrated GPUs, which have none "
            "of their own; nothing is wrong with those",
            kubectl("describe", "node", node.name, note="the event GPUMemoryUnknown names the cards of unknown memory"),
            "# if it names a card: let the plugin open render nodes, see docs/plugin.md, or set GPU_MEMORY_OVERRIDE",
            "# if it names none: no step is needed; --deny-ids of gas-plugin leaves integrated GPUs out",
        )
    if cards := sorted(card for each in by_source.values() for card in each):
        yield _missing_memory(
            node,
            cards,
            "the device plugin knows how much memory they have, but nothing of it is left for pods",
            _show(node, f"is annotation {names.CARD_CAPACITY} right?"),
            "# if it is: lower GPU_MEMORY_RESERVED of gas-plugin",
        )


def _missing_memory(node: DetailedNode, cards: list[Card], why: str, *mend: str) -> Finding:
    named = ", ".join(map(str, cards))
    return warning(
        CHECK,
        f"node {node.name}",
        f"pods that request {MEMORY_MAX} do not get {named}: {why}",
        *mend,
        expected=f"{MEMORY_MAX} of every card",
        found=f"none of {named}",
    )


def _without_memory(node: DetailedNode, inventory: Inventory) -> dict[str, list[Card]]:
    """Return source of memory -> cards without memory; the source is empty if the plugin has not recorded it.

    Cards without millicores are left out: they are unhealthy, or the node is not the plugin's.
    """
    records, _ = parse_card_records(node.annotations.get(ANNOTATION, "[]"))
    sources = {record.card: record.memory_source for record in records}
    found: dict[str, list[Card]] = {}
    for card, has in inventory.capacity.items():
        if has.get(MILLICORES) and not has.get(MEMORY_MAX):
            found.setdefault(sources.get(card, ""), []).append(card)
    return found


def _integrated(node: DetailedNode, inventory: Inventory) -> str:
    """Return a clause about the integrated GPUs; empty if there are none."""
    cards = _without_memory(node, inventory).get(MemorySource.SHARED, ())
    return f"; integrated, without memory of their own: {', '.join(map(str, cards))}" if cards else ""


def _odd(of_cards: dict[Card, int]) -> dict[Card, int]:
    """Return the cards with another amount than a whole card's. A card that cannot be used has 0."""
    return {card: amount for card, amount in of_cards.items() if amount not in (0, MILLICORES_OF_A_CARD)}


def _labels(node: DetailedNode, inventory: Inventory) -> Iterator[Finding]:
    """Check the old label of cards. It cannot continue in a second label, so it may name fewer cards, but no others."""
    if (text := node.labels.get(names.CARDS)) is None:
        return
    by_name = read_cards({names.CARDS: text}, [])
    if others := sorted(set(by_name) - set(inventory.cards)):
        yield warning(
            CHECK,
            f"node {node.name}",
            f"the labels {names.GPU_NUMBERS} and {names.CARDS} disagree; {names.GPU_NUMBERS} counts",
            kubectl("label", "node", node.name, f"{names.CARDS}-", note="removes the old label"),
            expected=", ".join(map(str, inventory.cards)),
            found=", ".join(map(str, others)),
        )


def _show(node: DetailedNode, note: str) -> str:
    return kubectl("get", "node", node.name, "--output=yaml", note=note)

"""Whether a node's resources are what its labels let expect."""

from __future__ import annotations

from collections.abc import Iterator

from gas.cards import Card
from gas.doctor.checks.gpu_nodes import amounts, gpu_nodes
from gas.doctor.commands import kubectl, pods_of
from gas.doctor.findings import Finding, ok, problem, warning
from gas.doctor.objects import SeenNode
from gas.doctor.snapshot import Snapshot
from gas.intel import names
from gas.intel.card_labels import read_cards
from gas.intel.inventory import read_node
from gas.placement.inventory import Inventory

CHECK = "node-resources"
MILLICORES = "millicores"
MILLICORES_OF_A_CARD = 1000


def check_node_resources(snapshot: Snapshot) -> Iterator[Finding]:
    for seen in gpu_nodes(snapshot):
        inventory = read_node(seen.node).inventory
        if not inventory.cards:
            continue  # told among the labels
        faults = [*_counts(seen), *_shares(seen, inventory), *_labels(seen, inventory)]
        yield from faults
        if not faults:
            told = ", ".join(f"{amount} {name}" for name, amount in sorted(amounts(seen).items()))
            yield ok(CHECK, seen.where, f"{len(inventory.cards)} cards with {told} altogether")


def _counts(seen: SeenNode) -> Iterator[Finding]:
    has, could = amounts(seen), amounts(seen, capacity=True)
    look = pods_of(seen.node.name, "is a device plugin there, is it ready, and what does its log say?")
    counted = [name for name in names.COUNT_RESOURCES if has.get(name) or could.get(name)]
    if not counted:
        yield problem(
            CHECK,
            seen.where,
            "it has labels about cards, and kubelet offers none of them",
            look,
            expected=f"{names.PREFIX}i915 or {names.PREFIX}xe in status.allocatable",
            found="neither",
        )
    for name in counted:
        allocatable, capacity = has.get(name, 0), could.get(name, 0)
        if allocatable == 0:
            yield problem(
                CHECK,
                seen.where,
                f"kubelet has lost the device plugin for {names.PREFIX}{name}, or all of its cards are unhealthy",
                look,
                expected=f"{capacity} allocatable",
                found="0",
            )
        elif allocatable < capacity:
            yield warning(
                CHECK,
                seen.where,
                f"some devices of {names.PREFIX}{name} are unhealthy",
                look,
                expected=f"{capacity} allocatable, as the capacity says",
                found=str(allocatable),
            )


def _shares(seen: SeenNode, inventory: Inventory) -> Iterator[Finding]:
    """What the cards have by our reckoning must add up to what kube-scheduler counts."""
    cards = len(inventory.cards)
    for name, total in sorted(amounts(seen).items()):
        if name in names.MONITORING_RESOURCES or not total:
            continue
        of_cards = {card: has.get(name, 0) for card, has in inventory.capacity.items()}
        if (added := sum(of_cards.values())) != total:
            yield warning(
                CHECK,
                seen.where,
                f"{names.PREFIX}{name} is not what its cards have together"
                + ("" if names.CARD_CAPACITY in seen.node.annotations else ": it does not divide evenly among them"),
                _show(seen, f"labels, annotation {names.CARD_CAPACITY} and allocatable must agree"),
                expected=f"{added}, from {cards} cards",
                found=str(total),
            )
        elif name == MILLICORES and (odd := _odd(of_cards)):
            yield warning(
                CHECK,
                seen.where,
                "a card has 1000 millicores, and these have other amounts",
                _show(seen, "correct it where it comes from"),
                expected=str(MILLICORES_OF_A_CARD * cards),
                found=", ".join(f"{card}: {amount}" for card, amount in odd.items()),
            )


def _odd(of_cards: dict[Card, int]) -> dict[Card, int]:
    """Cards with another amount than a whole card's; 0 is that of one that cannot be given out."""
    return {card: amount for card, amount in of_cards.items() if amount not in (0, MILLICORES_OF_A_CARD)}


def _labels(seen: SeenNode, inventory: Inventory) -> Iterator[Finding]:
    """The old label of cards has no continuations, so it may name fewer; never others."""
    if (text := seen.node.labels.get(names.CARDS)) is None:
        return
    by_name = read_cards({names.CARDS: text}, [])
    if strange := sorted(set(by_name) - set(inventory.cards)):
        yield warning(
            CHECK,
            seen.where,
            f"the labels {names.GPU_NUMBERS} and {names.CARDS} disagree; the first counts",
            kubectl("label", "node", seen.node.name, f"{names.CARDS}-", note="takes the old label away"),
            expected=", ".join(map(str, inventory.cards)),
            found=", ".join(map(str, strange)),
        )


def _show(seen: SeenNode, note: str) -> str:
    return kubectl("get", "node", seen.node.name, "--output=yaml", note=note)

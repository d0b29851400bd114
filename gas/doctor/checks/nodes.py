"""Check that labels name each node's cards, and that its resources agree with them."""

from collections.abc import Iterator

from configurator.scheduler_configuration import CARD_RESOURCES
from gas.doctor import fix
from gas.doctor.check import Check
from gas.doctor.checks.daemonsets import check_daemonsets, install_plugin
from gas.doctor.findings import Finding, Level, Unseen, about, not_seen, ok, problem, warning
from gas.doctor.gpus import gpu_amounts, gpu_nodes, is_served, label_writers
from gas.doctor.snapshot import Snapshot
from gas.inspection.objects import InspectedNode
from gas.objects.stored import DetailedNode
from gas.placement.inventory import Inventory
from gas.values.amounts import MEMORY_MAX, MILLICORES, MILLICORES_OF_A_CARD
from gas.values.card_facts import MemorySource
from gas.values.card_records import ANNOTATION
from gas.values.cards import Card
from gas.values.quoted import listed
from gas.vocabularies.intel import names
from gas.vocabularies.intel.node_labels import read_cards
from gas.vocabularies.node_parts import recorded_cards
from gas.vocabularies.protocol import NodeFacts

LABELS = "node-labels"


def check_node_labels(snapshot: Snapshot) -> Iterator[Finding]:
    if isinstance(snapshot.nodes, Unseen):
        yield not_seen("nodes", snapshot.nodes)
        return
    nodes = list(gpu_nodes(snapshot))
    vocabularies = snapshot.vocabularies
    for node in nodes:
        yield from about(f"node {node.name}", _labels_of(snapshot, node, vocabularies.facts(node)))
    if snapshot.only_node and not any(snapshot.checked_nodes):
        yield problem("the node does not exist", "kubectl get nodes", where=f"node {snapshot.only_node}")
    elif (
        not nodes
        and not any(is_served(node) or recorded_cards(node) for node in snapshot.checked_nodes)
        and all(each.level is Level.OK for each in check_daemonsets(snapshot))
    ):
        yield problem(
            "no label and no resource is about GPUs",
            install_plugin(snapshot),
            where=f"node {snapshot.only_node}" if snapshot.only_node else "nodes",
            expected=f"a label {names.GPU_NUMBERS} and a resource {' or '.join(CARD_RESOURCES)}",
            found="neither",
        )


def _labels_of(snapshot: Snapshot, node: InspectedNode, facts: NodeFacts) -> Iterator[Finding]:
    if not facts.inventory.cards:
        label = ("label", "node", node.name, f"{names.GPU_NUMBERS}=0.1")
        yield problem(
            "no label names its cards, so pods cannot get any of them",
            install_plugin(snapshot, node),
            fix.kubectl(*label, note="its card numbers, if no plugin writes them"),
            expected=f"label {names.GPU_NUMBERS}",
            found="; ".join(facts.problems) or "none",
        )
        return
    problems, labelled = list(facts.problems), read_cards(node.labels, [])
    recorded = [each.card for each in recorded_cards(node) if each.driver in names.COUNT_RESOURCES]
    if labelled and (others := [str(card) for card in recorded if card not in labelled]):
        problems.append(f"annotation {ANNOTATION} records {listed(others)}, which no label names; pods do not get them")
    for sentence in problems:
        yield warning(sentence, _show(node, "and correct it at its source"))
    writers = label_writers(node)
    by = ", ".join(sorted(writers)) or "a client that the API server has not recorded"
    by_hand = writers and all(writer.startswith("kubectl") for writer in writers)
    note = "; no program keeps them up to date" if by_hand else ""
    yield ok(f"its labels name {first_cards(facts.inventory)}; written by {by}{note}", summary_of="object")


def first_cards(inventory: Inventory) -> str:
    return ", ".join(map(str, inventory.cards[:8])) + (" and more" if len(inventory.cards) > 8 else "")


def check_node_resources(snapshot: Snapshot) -> Iterator[Finding]:
    vocabularies = snapshot.vocabularies
    for node in gpu_nodes(snapshot):
        inventory = vocabularies.facts(node).inventory
        if inventory.cards:  # otherwise reported with the labels
            yield from about(f"node {node.name}", _resources_of(node, inventory))


def _resources_of(node: DetailedNode, inventory: Inventory) -> Iterator[Finding]:
    without_memory = _without_memory(node, inventory)
    yield from _counts(node)
    yield from _shares(node, inventory)
    yield from _memory(node, without_memory)
    yield from _old_label(node, inventory)
    total = ", ".join(f"{amount} {name}" for name, amount in sorted(gpu_amounts(node).items()))
    cards = without_memory.get(MemorySource.SHARED, ())
    integrated = f"; integrated, without memory of their own: {', '.join(map(str, cards))}" if cards else ""
    yield ok(f"{len(inventory.cards)} cards with {total} in total{integrated}", summary_of="object")


def _counts(node: DetailedNode) -> Iterator[Finding]:
    has, could = gpu_amounts(node), gpu_amounts(node, capacity=True)
    look = fix.pods_on(node.name, "is there a device plugin, is it ready, and what does its log say?")
    resources = {name.removeprefix(names.PREFIX): name for name in CARD_RESOURCES}
    counted = [name for name in resources if has.get(name) or could.get(name)]
    if not counted:
        yield problem("it has labels about cards, but kubelet does not offer any", look)
    for name in counted:
        allocatable, capacity = has.get(name, 0), could.get(name, 0)
        if allocatable < capacity:
            lost = f"kubelet has lost the device plugin for {resources[name]}, or all its cards are unhealthy"
            sentence = f"some devices of {resources[name]} are unhealthy" if allocatable else lost
            report = warning if allocatable else problem
            yield report(sentence, look, expected=f"{capacity} allocatable", found=str(allocatable))


def _shares(node: DetailedNode, inventory: Inventory) -> Iterator[Finding]:
    """Check that the amounts of the cards add up to the node's amounts, which kube-scheduler counts."""
    cards = len(inventory.cards)
    for name, total in sorted(gpu_amounts(node).items()):
        if name in names.MONITORING_RESOURCES or not total:
            continue
        of_cards = {card: has.get(name, 0) for card, has in inventory.capacity.items()}
        # A card that cannot be used has 0.
        odd = {card: amount for card, amount in of_cards.items() if amount not in (0, MILLICORES_OF_A_CARD)}
        if (added := sum(of_cards.values())) != total:
            yield warning(
                f"{names.PREFIX}{name} is not the sum of its cards"
                + ("" if names.CARD_CAPACITY in node.annotations else ": it does not divide evenly among them"),
                _show(node, f"labels, annotation {names.CARD_CAPACITY} and allocatable must agree"),
                expected=f"{added}, from {cards} cards",
                found=str(total),
            )
        elif name == MILLICORES and odd:
            yield warning(
                "a card has 1000 millicores, but these cards have other amounts",
                _show(node, "and correct it at its source"),
                expected=str(MILLICORES_OF_A_CARD * cards),
                found=", ".join(f"{card}: {amount}" for card, amount in odd.items()),
            )


def _memory(node: DetailedNode, without_memory: dict[str, list[Card]]) -> Iterator[Finding]:
    """Check that cards in use have memory, except integrated GPUs, by the source that the plugin has recorded."""
    describe = ("describe", "node", node.name)
    unknown = "the device plugin does not know how much memory they have"
    open_nodes = "let the plugin open render nodes, see docs/plugin.md, or set GPU_MEMORY_OVERRIDE"
    for source, cards in without_memory.items():
        if source == MemorySource.SHARED:
            continue
        if source == MemorySource.UNKNOWN:
            why, note, *steps = unknown, "the event GPUMemoryUnknown says why", f"# {open_nodes}"
        elif not source:
            why = f"{unknown}, or they are integrated GPUs, which have none of their own; nothing is wrong with those"
            note = "the event GPUMemoryUnknown names the cards of unknown memory"
            leave_out = "# if it names none: no step is needed; --deny-ids of gas-plugin leaves integrated GPUs out"
            steps = [f"# if it names a card: {open_nodes}", leave_out]
        else:
            why = "the device plugin knows how much memory they have, but nothing of it is left for pods"
            note = f"is annotation {names.CARD_CAPACITY} right?"
            steps = ["# if it is: lower GPU_MEMORY_RESERVED of gas-plugin"]
        sentence = f"pods that request {MEMORY_MAX} do not get {', '.join(map(str, cards))}: {why}"
        yield warning(sentence, fix.kubectl(*describe, note=note), *steps)


def _without_memory(node: DetailedNode, inventory: Inventory) -> dict[str, list[Card]]:
    """Return the cards without memory by its source, which is empty if the plugin has not recorded it.

    Cards without millicores are left out: they are unhealthy, or the node is not the plugin's.
    """
    sources = {record.card: record.memory_source for record in recorded_cards(node)}
    found: dict[str, list[Card]] = {}
    for card, has in inventory.capacity.items():
        if has.get(MILLICORES) and not has.get(MEMORY_MAX):
            found.setdefault(sources.get(card, ""), []).append(card)
    return found


def _old_label(node: DetailedNode, inventory: Inventory) -> Iterator[Finding]:
    """Check the old label of cards. It cannot continue in a second label, so it may name fewer cards, but no others."""
    by_name = read_cards({names.CARDS: node.labels[names.CARDS]}, []) if names.CARDS in node.labels else ()
    if others := sorted(set(by_name) - set(inventory.cards)):
        yield warning(
            f"the labels {names.GPU_NUMBERS} and {names.CARDS} disagree; {names.GPU_NUMBERS} counts",
            fix.kubectl("label", "node", node.name, f"{names.CARDS}-", note="removes the old label"),
            expected=", ".join(map(str, inventory.cards)),
            found=", ".join(map(str, others)),
        )


def _show(node: DetailedNode, note: str) -> str:
    return fix.kubectl("get", "node", node.name, "--output=yaml", note=note)


CHECKS = (
    Check(name=LABELS, title="nodes' labels", findings=check_node_labels),
    Check(name="node-resources", title="nodes' resources", findings=check_node_resources),
)

"""Check that no vendor's own plugin hands out cards that gas-plugin hands out or pods share."""

from collections.abc import Iterator

from gas.doctor import fix
from gas.doctor.check import Check
from gas.doctor.checks.plugins import VOCABULARIES, entries_of
from gas.doctor.findings import Finding, about, problem
from gas.doctor.snapshot import Snapshot
from gas.objects.stored import DetailedNode
from gas.programs import EXTENDER, PLUGIN, Program, image_name, starts, vocabulary_flags
from gas.values.cards import Card
from gas.vocabularies.hami.vocabulary import HAMI
from gas.vocabularies.node_parts import allocatable_amount, allocatable_resources, recorded_cards
from gas.vocabularies.vendor.vocabulary import KINDS, VENDOR

NVIDIA_PLUGIN = Program(
    "NVIDIA's GPU device plugin",
    lambda each: image_name(each) == "k8s-device-plugin" or starts(each, "nvidia-device-plugin"),
)


def check_vendor_plugins(snapshot: Snapshot) -> Iterator[Finding]:
    vocabularies = snapshot.vocabularies
    shares = [resource.rpartition("/")[2] for resource in vocabularies.resources]
    for node in snapshot.checked_nodes:
        capacity = vocabularies.facts(node).inventory.capacity
        for kind in KINDS:
            whole = [each for each in recorded_cards(node) if not each.card.is_instance]
            if own := [each.card for each in whole if kind.driver and each.driver == kind.driver]:
                found = _found_by_us(snapshot, node, kind.resource, own)
            else:
                shared = [
                    card
                    for card, amounts in capacity.items()
                    if kind.counted in amounts and any(resource in amounts for resource in shares)
                ]
                found = _handed_out_twice(node, kind.resource, shared)
            yield from about(f"node {node.name}", found)


def _found_by_us(snapshot: Snapshot, node: DetailedNode, resource: str, cards: list[Card]) -> Iterator[Finding]:
    """Report a vendor's plugin on a node whose cards gas-plugin hands out. Without its pod, the resource shows it.

    A gas-plugin without a pod is assumed to know the extender's vocabularies.
    """
    for pod, _ in snapshot.running(NVIDIA_PLUGIN):
        if pod.node_name == node.name:
            note = "keep its DaemonSet away from this node, docs/nvidia.md"
            yield _two_plugins(cards, f"pod {pod.key}", fix.pod(pod, "describe", "pod", note=note))
            return
    programs = [each for each in snapshot.running(PLUGIN) if each[0].node_name == node.name]
    containers = [container for _, container in programs or snapshot.running(EXTENDER)[:1]]
    offered = allocatable_amount(allocatable_resources(node), resource, [])
    spoken = [entries_of(vocabulary_flags(container)["vocabularies"]) for container in containers]
    if spoken and offered and not any({VENDOR.name, HAMI.name} & {*each} for each in spoken):
        pods = ("get", "pods", "-A", "--field-selector", f"spec.nodeName={node.name}")
        yield _two_plugins(
            cards,
            f"{offered} {resource}, which gas-plugin does not offer without {VENDOR.name} among --vocabularies",
            fix.kubectl(*pods, note="and remove its plugin"),
        )


def _two_plugins(cards: list[Card], found: str, fix: str) -> Finding:
    return problem(
        f"NVIDIA's own plugin hands out {', '.join(map(str, cards[:8]))} as well as gas-plugin, without knowing the"
        " extender's decisions",
        fix,
        found=found,
    )


def _handed_out_twice(node: DetailedNode, resource: str, shared: list[Card]) -> Iterator[Finding]:
    if shared:
        label = ("label", "node", node.name, "KEY=VALUE")
        yield problem(
            f"the vendor's own plugin hands out {resource} on cards that pods share; it chooses cards without knowing"
            " the extender's decisions, so a pod with a whole card may get a card that others use",
            fix.kubectl(*label, note="and keep the vendor's plugin away from this node by it"),
            expected=f"{resource} on other nodes than shared cards",
            found=f"{resource} and shares on {', '.join(map(str, shared[:8]))}",
        )


CHECKS = (Check(name=VOCABULARIES, findings=check_vendor_plugins, programs=(NVIDIA_PLUGIN,)),)

"""Check that all programs speak the same vocabularies, and that no other system's program does the same work."""

from __future__ import annotations

from collections.abc import Iterator

from gas.doctor.checks.schedulers import INSTALL_WEBHOOKS
from gas.doctor.findings import Finding, kubectl, kubectl_pod, ok, problem, warning
from gas.doctor.gpus import resource_writers
from gas.doctor.probe import Unseen
from gas.doctor.programs import Program
from gas.doctor.snapshot import Snapshot
from gas.doctor.spoken import spoken_vocabularies, vocabulary_flags
from gas.objects.stored import DetailedNode
from gas.values.cards import Card
from gas.vocabularies.koordinator.vocabulary import KOORDINATOR
from gas.vocabularies.kubeshare.names import VGPU
from gas.vocabularies.kubeshare.vocabulary import KUBESHARE
from gas.vocabularies.node_parts import allocatable_amount, allocatable_resources, recorded_cards
from gas.vocabularies.vendor.vocabulary import KINDS, VENDOR

CHECK = "vocabularies"
COMPLETE_PATH = "/complete"

_WITHOUT_DEFAULTS = {
    KOORDINATOR.name: "in Koordinator's words wait unless they state their number of cards",
    KUBESHARE.name: f"with KubeShare's annotations run without a card unless their containers request {VGPU}",
}
"""What happens to pods that are not completed, by the vocabulary that has defaults."""

_KOORDINATORS_WRITER = "koord"


def check_vocabularies(snapshot: Snapshot) -> Iterator[Finding]:
    """Check the vocabularies of extender, plugins and nodes."""
    faults = [*_programs(snapshot), *_nodes(snapshot), *_other_writers(snapshot), *_completion(snapshot)]
    yield from faults
    spoken = _spoken(snapshot)
    if not faults and len(spoken) > 1:
        yield ok(CHECK, "extender and plugins", f"all speak {', '.join(spoken)}")


def _programs(snapshot: Snapshot) -> Iterator[Finding]:
    """Report plugins whose flags are not those of the extender; one of each kind."""
    extenders = snapshot.running(Program.EXTENDER)
    if not extenders:
        return
    wanted = vocabulary_flags(extenders[0][1])
    reported: set[tuple[str, str]] = set()
    for pod, container in [*extenders[1:], *snapshot.running(Program.PLUGIN)]:
        for flag, value in vocabulary_flags(container).items():
            if _as_set(value) == _as_set(wanted[flag]) or (flag, value) in reported:
                continue
            reported.add((flag, value))
            yield problem(
                CHECK,
                f"pod {pod.key}",
                f"--{flag} is not that of the extender, so pods wait for resources that no node has, or get no cards",
                kubectl_pod(pod, "describe", "pod", note=f"its owner needs --{flag}={wanted[flag]}"),
                expected=wanted[flag],
                found=value,
            )


def _as_set(value: str) -> frozenset[str]:
    """Return the entries of a list whose order does not matter."""
    return frozenset(each.strip() for each in value.split(","))


def _nodes(snapshot: Snapshot) -> Iterator[Finding]:
    """Report nodes on which the vendor's own plugin hands out cards that other pods share."""
    if isinstance(snapshot.nodes, Unseen):
        return
    vocabularies = spoken_vocabularies(snapshot)
    for node in snapshot.nodes:
        if snapshot.only_node and node.name != snapshot.only_node:
            continue
        capacity = vocabularies.facts(node).inventory.capacity
        for kind in KINDS:
            if own := [each.card for each in recorded_cards(node) if kind.driver and each.driver == kind.driver]:
                yield from _found_by_us(snapshot, node, kind.resource, own)
                continue
            shared = [
                card
                for card, amounts in capacity.items()
                if kind.counted in amounts
                and any(resource.rpartition("/")[2] in amounts for resource in vocabularies.resources)
            ]
            if shared:
                yield _handed_out_twice(node, kind.resource, shared)


def _other_writers(snapshot: Snapshot) -> Iterator[Finding]:
    """Report nodes on which Koordinator writes the resources that the plugin writes."""
    if isinstance(snapshot.nodes, Unseen) or KOORDINATOR.name not in _spoken(snapshot):
        return
    for node in snapshot.nodes:
        if snapshot.only_node and node.name != snapshot.only_node:
            continue
        for manager, resource in resource_writers(node, KOORDINATOR.devices.owns_resource).items():
            if manager.startswith(_KOORDINATORS_WRITER):
                yield problem(
                    CHECK,
                    f"node {node.name}",
                    f"Koordinator writes {resource} on the node as well, so the amounts change to and fro",
                    "docs/from-koordinator.md   # switch off Koordinator's part",
                    expected="only gas-plugin writes it",
                    found=f"field manager {manager}",
                )


def _completion(snapshot: Snapshot) -> Iterator[Finding]:
    """Report that no webhook adds their defaults to pods in words that have some."""
    if isinstance(snapshot.webhooks, Unseen) or any(each.path == COMPLETE_PATH for each in snapshot.webhooks):
        return
    for name in _spoken(snapshot):
        if name in _WITHOUT_DEFAULTS:
            yield warning(
                CHECK,
                "admission webhooks",
                f"no webhook completes pods, so those {_WITHOUT_DEFAULTS[name]}",
                INSTALL_WEBHOOKS,
                expected="the webhook complete.pods.gas",
                found="none with the path /complete",
            )


def _spoken(snapshot: Snapshot) -> list[str]:
    return [each.name for each in spoken_vocabularies(snapshot)]


def _found_by_us(snapshot: Snapshot, node: DetailedNode, resource: str, cards: list[Card]) -> Iterator[Finding]:
    """Report a vendor's plugin on a node whose cards gas-plugin hands out. Without its pod, the resource gives it away.

    A gas-plugin without a pod is taken to speak the extender's vocabularies.
    """
    for pod, _ in snapshot.running(Program.NVIDIA_PLUGIN):
        if pod.node_name == node.name:
            yield _two_plugins(
                node,
                cards,
                f"pod {pod.key}",
                kubectl_pod(pod, "describe", "pod", note="keep its DaemonSet away from this node, docs/nvidia.md"),
            )
            return
    programs = [each for each in snapshot.running(Program.PLUGIN) if each[0].node_name == node.name]
    containers = [container for _, container in programs or snapshot.running(Program.EXTENDER)[:1]]
    offered = allocatable_amount(allocatable_resources(node), resource, [])
    if (
        containers
        and offered
        and not any(VENDOR.name in _as_set(vocabulary_flags(container)["vocabularies"]) for container in containers)
    ):
        yield _two_plugins(
            node,
            cards,
            f"{offered} {resource}, which gas-plugin does not offer without {VENDOR.name} among --vocabularies",
            kubectl(
                "get", "pods", "-A", "--field-selector", f"spec.nodeName={node.name}", note="and remove its plugin"
            ),
        )


def _two_plugins(node: DetailedNode, cards: list[Card], found: str, mend: str) -> Finding:
    return problem(
        CHECK,
        f"node {node.name}",
        f"NVIDIA's own plugin hands out {', '.join(map(str, cards[:8]))} as well as gas-plugin, without knowing the"
        " extender's decisions",
        mend,
        expected="one plugin for these cards",
        found=found,
    )


def _handed_out_twice(node: DetailedNode, resource: str, cards: list[Card]) -> Finding:
    return problem(
        CHECK,
        f"node {node.name}",
        f"the vendor's own plugin hands out {resource} on cards that pods share; it chooses cards without knowing the"
        " extender's decisions, so a pod with a whole card may get a card that others use",
        kubectl("label", "node", node.name, "KEY=VALUE", note="and keep the vendor's plugin away from this node by it"),
        expected=f"{resource} on other nodes than shared cards",
        found=f"{resource} and shares on {', '.join(map(str, cards[:8]))}",
    )

"""Check that all programs speak the same vocabularies, and that no card is handed out by two plugins."""

from __future__ import annotations

from collections.abc import Iterator

from gas.cards import Card
from gas.doctor.findings import Finding, kubectl, kubectl_pod, ok, problem
from gas.doctor.probe import Unseen
from gas.doctor.programs import Program
from gas.doctor.snapshot import Snapshot
from gas.doctor.spoken import spoken_vocabularies, vocabulary_flags
from gas.objects import DetailedNode
from gas.vendor.vocabulary import KINDS

CHECK = "vocabularies"


def check_vocabularies(snapshot: Snapshot) -> Iterator[Finding]:
    """Check the vocabularies of extender, plugins and nodes."""
    faults = [*_programs(snapshot), *_nodes(snapshot)]
    yield from faults
    spoken = [each.name for each in spoken_vocabularies(snapshot)]
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
    """Return the entries of a list whose order matters only to pods in the words of two vocabularies."""
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
            shared = [
                card
                for card, amounts in capacity.items()
                if kind.counted in amounts
                and any(resource.rpartition("/")[2] in amounts for resource in vocabularies.resources)
            ]
            if shared:
                yield _handed_out_twice(node, kind.resource, shared)


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

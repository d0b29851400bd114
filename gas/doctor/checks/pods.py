"""Check the annotations of bound GPU pods, and report why other GPU pods wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

from gas.doctor.check import Check, DoctorPart
from gas.doctor.checks.rebuilt_ledger import RebuiltLedger, at_once, rebuild_ledger
from gas.doctor.findings import Finding, Unseen, about, kubectl_pod, not_seen, ok, problem, unknown, warning
from gas.doctor.snapshot import Snapshot
from gas.objects.stored import DetailedPod
from gas.placement.inventory import NOTHING
from gas.vocabularies.pod_checks import PodChecks
from gas.vocabularies.protocol import NeedOptions

CHECK = "pods"
MOST = 20
"""Pods with one kind of fault that are reported one by one."""

OBEYED = NeedOptions(allowlist=True, denylist=True)
"""The needs that pods may state. These flags of the extender are not known, so lists of cards count as obeyed."""

NOT_ASKED = ("/scheduler/filter", "/scheduler/bind", "replica of the extender", "the ledger is not complete")
"""Parts of the scheduler's message about a pod: the extender was not reached, or did not decide."""


def part(scores_nodes: Callable[[Snapshot], bool]) -> DoctorPart:
    """Return the part. ``scores_nodes`` returns whether the extender scores nodes, as pods may ask."""

    def findings(snapshot: Snapshot) -> Iterator[Finding]:
        return check_pods(snapshot, scores_nodes=scores_nodes(snapshot))

    return DoctorPart(checks=(Check(name=CHECK, title="pods with GPUs", findings=findings),))


def check_pods(snapshot: Snapshot, *, scores_nodes: bool) -> Iterator[Finding]:
    """Check all GPU pods that are not over."""
    if isinstance(snapshot.pods, Unseen):
        yield not_seen("pods", snapshot.pods)
        return
    if snapshot.undecodable:
        yield unknown(
            f"{snapshot.undecodable} of them cannot be decoded and are left out",
            "kubectl get nodes,pods --all-namespaces --output=json",
            where="nodes and pods",
        )
    rebuilt = rebuild_ledger(snapshot)
    vocabularies = snapshot.vocabularies

    def is_checked(pod: DetailedPod) -> bool:
        is_here = not pod.node_name or snapshot.is_checked(pod.node_name)
        return is_here and not pod.is_over and vocabularies.is_gpu_pod(pod)

    bound = [pod for pod in snapshot.pods if pod.node_name and is_checked(pod)]
    yield from about("bound pods", _bound(len(bound), rebuilt, is_checked))
    for node in filter(snapshot.is_checked, rebuilt.nodes):
        yield from _overbooked(node, rebuilt)
        yield from _wrong_company(node, rebuilt)
    waiting = [pod for pod in snapshot.pods if not pod.node_name and is_checked(pod)]
    checks = PodChecks(vocabularies, OBEYED, scores_nodes=scores_nodes)
    nodes = () if snapshot.undecodable else tuple(rebuilt.nodes.values())
    names = {name for each in snapshot.schedulers if each.entries for name in each.names}
    for pod in waiting[:MOST]:
        about_pod = checks.pod(pod)
        sentences = [f"no node can ever run it: {about_pod.bad_need}"] if about_pod.bad_need else []
        sentences += [*about_pod.faults, *about_pod.warnings, *at_once(checks.in_cluster(pod, nodes))]
        found = [warning(sentence, kubectl_pod(pod, "describe", "pod")) for sentence in sentences]
        yield from about(f"pod {pod.key}", found if about_pod.bad_need else [*found, _waits(pod, names)])
    if len(waiting) > MOST:
        yield ok(f"{len(waiting) - MOST} more wait", where="waiting pods")


def _bound(count: int, rebuilt: RebuiltLedger, is_checked: Callable[[DetailedPod], bool]) -> Iterator[Finding]:
    faults = [fault for fault in rebuilt.faults if is_checked(fault.pod)]
    for fault in faults[:MOST]:
        where = f"pod {fault.pod.key} on node {fault.pod.node_name}"
        if fault.is_unbooked:
            delete = kubectl_pod(fault.pod, "delete", "pod", note="its owner creates a new one")
            yield problem(fault.sentence, delete, where=where)
        else:
            yield warning(fault.sentence, kubectl_pod(fault.pod, "describe", "pod"), where=where)
    if len(faults) > MOST:
        yield problem(
            f"{len(faults) - MOST} more pods have invalid annotations", "gas doctor --node=NAME   # node by node"
        )
    if not faults:
        yield ok(f"the annotations of all {count} with GPUs are valid")


def _overbooked(node: str, rebuilt: RebuiltLedger) -> Iterator[Finding]:
    capacity = rebuilt.nodes[node].inventory.capacity
    for card, booked in rebuilt.ledger.usage(node).amounts.items():
        has = capacity.get(card, NOTHING)
        over = {name: amount for name, amount in booked.items() if amount > has.get(name, 0)}
        if over and card in capacity:
            yield problem(
                "pods hold more than the card has",
                *(kubectl_pod(pod, "delete", "pod", note="one of them") for pod in rebuilt.holders.get(node, ())[:3]),
                where=f"{card} of node {node}",
                expected=", ".join(f"at most {has.get(name, 0)} {name}" for name in over),
                found=", ".join(f"{amount} {name}" for name, amount in over.items()),
            )


def _wrong_company(node: str, rebuilt: RebuiltLedger) -> Iterator[Finding]:
    """Report pods on one card that must not share it: kubelet gave other cards, or annotations were edited."""
    if not rebuilt.ledger.usage(node).company:
        return
    bookings = sorted(rebuilt.ledger.on_node(node).values(), key=lambda booking: booking.pod)
    for one, other in combinations(bookings, 2):
        shared = sorted(one.footprint.amounts.keys() & other.footprint.amounts.keys())
        ours, theirs = one.footprint.company, [other.footprint.company]
        if shared and not (ours.has_same_exclusion(theirs) and ours.has_no_anti_affinity(theirs)):
            pods = [pod for pod in rebuilt.holders[node] if pod.key in (one.pod, other.pod)]
            yield warning(
                f"the exclusion or anti-affinity of the pods {one.pod} and {other.pod} forbids that they share it",
                *(kubectl_pod(pod, "delete", "pod", note="one of them") for pod in pods),
                where=f"{shared[0]} of node {node}",
            )


def _waits(pod: DetailedPod, names: set[str]) -> Finding:
    scheduler = pod.spec.scheduler_name or "default-scheduler"
    if names and scheduler not in names:
        return problem(
            "its scheduler does not call the extender",
            kubectl_pod(pod, "describe", "pod", note="and give it another schedulerName"),
            expected=" or ".join(sorted(names)),
            found=scheduler,
        )
    scheduled = pod.condition("PodScheduled")
    message = (scheduled.message if scheduled is not None else None) or "no scheduler has reported on it yet"
    if any(words in message for words in NOT_ASKED):
        return problem(f"the extender could not decide about it: {message}", kubectl_pod(pod, "describe", "pod"))
    return ok(f"waits: {message}")

"""Check the annotations of bound GPU pods, and report why other GPU pods wait."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import combinations

from gas.doctor.checks.rebuilt_ledger import Fault, RebuiltLedger, rebuild_ledger
from gas.doctor.checks.schedulers import scoring_extenders
from gas.doctor.findings import Finding, kubectl_pod, ok, problem, unknown, warning
from gas.doctor.probe import Unseen
from gas.doctor.snapshot import Snapshot
from gas.doctor.spoken import spoken_vocabularies
from gas.objects.stored import DetailedPod
from gas.placement.inventory import NOTHING
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.pod_checks import PodChecks
from gas.vocabularies.protocol import NeedOptions

CHECK = "pods"
MOST = 20
"""Pods with one kind of fault that are reported one by one."""

OBEYED = NeedOptions(allowlist=True, denylist=True)
"""The needs that pods may state. These flags of the extender are not known, so lists of cards count as obeyed."""

NOT_ASKED = ("/scheduler/filter", "/scheduler/bind", "replica of the extender", "the ledger is not complete")
"""Parts of the scheduler's message about a pod: the extender was not reached, or did not decide."""


def check_pods(snapshot: Snapshot) -> Iterator[Finding]:
    """Check all GPU pods that are not over."""
    if isinstance(snapshot.pods, Unseen):
        yield unknown(CHECK, "pods", snapshot.pods.why, snapshot.pods.mend)
        return
    if snapshot.undecodable:
        yield unknown(
            CHECK,
            "nodes and pods",
            f"{snapshot.undecodable} of them cannot be decoded and are left out",
            "kubectl get nodes,pods --all-namespaces --output=json",
        )
    rebuilt = rebuild_ledger(snapshot)
    spoken = spoken_vocabularies(snapshot)
    wanted = [pod for pod in snapshot.pods if _is_checked(snapshot, spoken, pod)]
    bound = [pod for pod in wanted if pod.node_name]
    faults = [fault for fault in rebuilt.faults if _is_checked(snapshot, spoken, fault.pod)]
    yield from _faults(faults)
    yield from _overbooked(snapshot, rebuilt)
    yield from _wrong_company(snapshot, rebuilt)
    if not faults:
        yield ok(CHECK, "bound pods", f"the annotations of all {len(bound)} with GPUs are valid")
    yield from _waiting(snapshot, rebuilt, [pod for pod in wanted if not pod.node_name])


def _is_checked(snapshot: Snapshot, spoken: Vocabularies, pod: DetailedPod) -> bool:
    is_elsewhere = bool(snapshot.only_node and pod.node_name not in ("", snapshot.only_node))
    return spoken.is_gpu_pod(pod) and not pod.is_over and not is_elsewhere


def _faults(faults: list[Fault]) -> Iterator[Finding]:
    for fault in faults[:MOST]:
        yield (problem if fault.is_unbooked else warning)(
            CHECK,
            f"pod {fault.pod.key} on node {fault.pod.node_name}",
            fault.sentence,
            kubectl_pod(fault.pod, "delete", "pod", note="its owner creates a new one")
            if fault.is_unbooked
            else kubectl_pod(fault.pod, "describe", "pod"),
        )
    if len(faults) > MOST:
        yield problem(
            CHECK,
            "bound pods",
            f"{len(faults) - MOST} more pods have invalid annotations",
            "gas doctor --node=NAME   # node by node",
        )


def _overbooked(snapshot: Snapshot, rebuilt: RebuiltLedger) -> Iterator[Finding]:
    for node, facts in rebuilt.nodes.items():
        if snapshot.only_node and node != snapshot.only_node:
            continue
        for card, booked in rebuilt.ledger.usage(node).amounts.items():
            has = facts.inventory.capacity.get(card, NOTHING)
            over = {name: amount for name, amount in booked.items() if amount > has.get(name, 0)}
            if over and card in facts.inventory.capacity:
                yield problem(
                    CHECK,
                    f"{card} of node {node}",
                    "pods hold more than the card has",
                    *(
                        kubectl_pod(pod, "delete", "pod", note="one of them")
                        for pod in rebuilt.holders.get(node, ())[:3]
                    ),
                    expected=", ".join(f"at most {has.get(name, 0)} {name}" for name in over),
                    found=", ".join(f"{amount} {name}" for name, amount in over.items()),
                )


def _wrong_company(snapshot: Snapshot, rebuilt: RebuiltLedger) -> Iterator[Finding]:
    """Report pods on one card that must not share it: kubelet gave other cards, or annotations were edited."""
    for node in rebuilt.nodes:
        if (snapshot.only_node and node != snapshot.only_node) or not rebuilt.ledger.usage(node).company:
            continue
        bookings = sorted(rebuilt.ledger.on_node(node).values(), key=lambda booking: booking.pod)
        for one, other in combinations(bookings, 2):
            shared = sorted(one.footprint.amounts.keys() & other.footprint.amounts.keys())
            ours, theirs = one.footprint.company, [other.footprint.company]
            if shared and not (ours.has_same_exclusion(theirs) and ours.has_no_anti_affinity(theirs)):
                yield warning(
                    CHECK,
                    f"{shared[0]} of node {node}",
                    f"the exclusion or anti-affinity of the pods {one.pod} and {other.pod} forbids that they share it",
                    *(
                        kubectl_pod(pod, "delete", "pod", note="one of them")
                        for pod in rebuilt.holders[node]
                        if pod.key in (one.pod, other.pod)
                    ),
                )


def _waiting(snapshot: Snapshot, rebuilt: RebuiltLedger, waiting: list[DetailedPod]) -> Iterator[Finding]:
    names = {
        name
        for each in snapshot.schedulers
        if each.configuration is not None and not isinstance(each.configuration, Unseen)
        if each.configuration.gpu_extenders
        for name in each.configuration.scheduler_names
    }
    scored = scoring_extenders(snapshot)
    creation = PodChecks(spoken_vocabularies(snapshot), OBEYED, scores_nodes=any(scored) or not scored)
    nodes = () if snapshot.undecodable else tuple(rebuilt.nodes.values())
    for pod in waiting[:MOST]:
        findings = creation.pod(pod)
        if findings.bad_need:
            yield _warning(pod, f"no node can ever run it: {findings.bad_need}")
        for sentence in (*findings.faults, *findings.warnings, *_at_once(creation.in_cluster(pod, nodes))):
            yield _warning(pod, sentence)
        if not findings.bad_need:
            yield _waits(pod, names)
    if len(waiting) > MOST:
        yield ok(CHECK, "waiting pods", f"{len(waiting) - MOST} more wait")


def _warning(pod: DetailedPod, sentence: str) -> Finding:
    return warning(CHECK, f"pod {pod.key}", sentence, kubectl_pod(pod, "describe", "pod"))


def _at_once(work: Generator[None, None, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the result of work that could be done in turns."""
    try:
        while True:
            next(work)
    except StopIteration as done:
        result: tuple[str, ...] = done.value
        return result


def _waits(pod: DetailedPod, names: set[str]) -> Finding:
    where = f"pod {pod.key}"
    describe = kubectl_pod(pod, "describe", "pod")
    scheduler = pod.spec.scheduler_name or "default-scheduler"
    if names and scheduler not in names:
        return problem(
            CHECK,
            where,
            "its scheduler does not call the extender",
            kubectl_pod(pod, "describe", "pod", note="and give it another schedulerName"),
            expected=" or ".join(sorted(names)),
            found=scheduler,
        )
    scheduled = pod.condition("PodScheduled")
    message = (scheduled.message if scheduled is not None else None) or "no scheduler has reported on it yet"
    if any(words in message for words in NOT_ASKED):
        return problem(CHECK, where, f"the extender could not decide about it: {message}", describe)
    return ok(CHECK, where, f"waits: {message}")

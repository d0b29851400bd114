"""Pods with GPUs: whether what is written on them can be believed, and why others wait."""

from __future__ import annotations

from collections.abc import Iterator

from gas.doctor.checks.books import Books, make_books
from gas.doctor.commands import of_pod
from gas.doctor.findings import Finding, ok, problem, unknown, warning
from gas.doctor.gpu_pods import asks_for_gpus
from gas.doctor.looked import Unseen
from gas.doctor.objects import SeenPod
from gas.doctor.snapshot import Snapshot
from gas.intel.need import read_need
from gas.placement.inventory import NOTHING
from gas.vocabulary import BadNeed, NeedOptions

CHECK = "pods"
MOST = 20
"""Pods of one kind that are told one by one."""

NOT_ASKED = ("/scheduler/filter", "/scheduler/bind", "replica of the extender", "the books are not complete")
"""In the scheduler's words about a pod: the extender was not reached, or did not decide."""


def check_pods(snapshot: Snapshot) -> Iterator[Finding]:
    if isinstance(snapshot.pods, Unseen):
        yield unknown(CHECK, "pods", snapshot.pods.why, snapshot.pods.mend)
        return
    if snapshot.undecodable:
        yield unknown(
            CHECK,
            "nodes and pods",
            f"{snapshot.undecodable} of them cannot be read and were left out",
            "kubectl get nodes,pods --all-namespaces --output=json",
        )
    books = make_books(snapshot)
    wanted = [seen for seen in snapshot.pods if _is_looked_at(snapshot, seen)]
    bound = [seen for seen in wanted if seen.pod.node_name]
    troubles = [each for each in books.trouble if _is_looked_at(snapshot, each[0])]
    yield from _troubles(troubles)
    yield from _oversubscribed(snapshot, books)
    if not troubles:
        yield ok(CHECK, "bound pods", f"what is written on all with GPUs is believed; they are {len(bound)}")
    yield from _waiting(snapshot, [seen for seen in wanted if not seen.pod.node_name])


def _is_looked_at(snapshot: Snapshot, seen: SeenPod) -> bool:
    is_elsewhere = bool(snapshot.only_node and seen.pod.node_name not in ("", snapshot.only_node))
    return asks_for_gpus(seen.pod) and not seen.pod.is_over and not is_elsewhere


def _troubles(troubles: list[tuple[SeenPod, str, bool]]) -> Iterator[Finding]:
    for seen, sentence, is_unbooked in troubles[:MOST]:
        yield (problem if is_unbooked else warning)(
            CHECK,
            f"{seen.where} on node {seen.pod.node_name}",
            sentence,
            of_pod(seen.pod, "delete", "pod", note="its owner makes a new one"),
        )
    if len(troubles) > MOST:
        yield problem(
            CHECK,
            "bound pods",
            f"{len(troubles) - MOST} more have such troubles",
            "gas doctor --node=NAME   # node by node",
        )


def _oversubscribed(snapshot: Snapshot, books: Books) -> Iterator[Finding]:
    for node, facts in books.nodes.items():
        if snapshot.only_node and node != snapshot.only_node:
            continue
        for card, booked in books.ledger.usage(node).amounts.items():
            has = facts.inventory.capacity.get(card, NOTHING)
            over = {name: amount for name, amount in booked.items() if amount > has.get(name, 0)}
            if over and card in facts.inventory.capacity:
                yield problem(
                    CHECK,
                    f"{card} of node {node}",
                    "pods hold more of it than it has",
                    *(of_pod(pod, "delete", "pod", note="one of them") for pod in books.holders.get(node, ())[:3]),
                    expected=", ".join(f"at most {has.get(name, 0)} {name}" for name in over),
                    found=", ".join(f"{amount} {name}" for name, amount in over.items()),
                )


def _waiting(snapshot: Snapshot, waiting: list[SeenPod]) -> Iterator[Finding]:
    names = {
        name
        for each in snapshot.schedulers
        if each.configuration is not None and not isinstance(each.configuration, Unseen)
        if each.configuration.gpu_extenders
        for name in each.configuration.scheduler_names
    }
    for seen in waiting[:MOST]:
        yield _waits(seen, names)
    if len(waiting) > MOST:
        yield ok(CHECK, "waiting pods", f"{len(waiting) - MOST} more wait, too")


def _waits(seen: SeenPod, names: set[str]) -> Finding:
    describe = of_pod(seen.pod, "describe", "pod")
    try:
        read_need(seen.pod, NeedOptions(allowlist=True, denylist=True))
    except BadNeed as error:
        return warning(CHECK, seen.where, f"no node can ever take it: {error}", describe)
    scheduler = seen.details.spec.scheduler_name or "default-scheduler"
    if names and scheduler not in names:
        return problem(
            CHECK,
            seen.where,
            "its scheduler does not call the extender",
            of_pod(seen.pod, "describe", "pod", note="and give it another schedulerName"),
            expected=" or ".join(sorted(names)),
            found=scheduler,
        )
    scheduled = seen.details.status.condition("PodScheduled") if seen.details.status is not None else None
    message = (scheduled.message if scheduled is not None else None) or "no scheduler has said anything about it yet"
    if any(words in message for words in NOT_ASKED):
        return problem(CHECK, seen.where, f"the extender could not decide about it: {message}", describe)
    return ok(CHECK, seen.where, f"waits: {message}")

"""Check whether a pod that asks for one card would be placed: by the extender, and by a ledger made here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gas.doctor.check import Check, DoctorPart
from gas.doctor.checks.rebuilt_ledger import RebuiltLedger, rebuild_ledger
from gas.doctor.findings import Finding, Unseen, about, ok, problem, unknown, warning
from gas.doctor.gpus import DryPod, dry_pod_for
from gas.doctor.snapshot import Reply, Snapshot
from gas.placement.place import place
from gas.placement.refusal import Refusal
from gas.vocabularies.known import DEFAULT
from gas.vocabularies.protocol import NeedOptions

CHECK = "dry-pod"
ASK = "sudo gas doctor   # on the control-plane node, which has kube-scheduler's certificate"
ASK_AGAIN = "gas doctor   # again, once the extender responds"


def check_placing(snapshot: Snapshot) -> Iterator[Finding]:
    """Compare the extender's decision about the dry pod with one made from the cluster's objects."""
    if not snapshot.dry_pod or isinstance(snapshot.nodes, Unseen):
        return
    dry_pod = dry_pod_for(snapshot.nodes, snapshot.only_node)
    if dry_pod is not None:  # otherwise reported with labels and resources
        room = len(dry_pod.nodes) - _refused_here(rebuild_ledger(snapshot), dry_pod)
        yield from about(f"a pod that asks for {dry_pod.resource}: 1", _decisions(snapshot, len(dry_pod.nodes), room))


def _refused_here(rebuilt: RebuiltLedger, dry_pod: DryPod) -> int:
    """Return on how many nodes the pod does not fit by the ledger made here."""
    need = DEFAULT.need(dry_pod.pod(), NeedOptions())
    results = [place(need, rebuilt.nodes[node].inventory, rebuilt.ledger.usage(node)) for node in dry_pod.nodes]
    return sum(isinstance(result, Refusal) for result in results)


def _decisions(snapshot: Snapshot, count: int, room: int) -> Iterator[Finding]:
    is_decided = False
    for call in snapshot.calls:
        if call.reply is not None and not call.reply.error:
            is_decided = True
            yield _decision(call.reply, call.entry.url_prefix, count, room)
    if not is_decided:
        is_here = any(call.scheduler.is_here for call in snapshot.calls)
        yield unknown(
            "the extender returned no decision; according to the annotations in the cluster it would fit on"
            f" {room} of {count} nodes",
            ASK_AGAIN if is_here else ASK,
        )


def _decision(reply: Reply, extender: str, count: int, room: int) -> Finding:
    if reply.passed:
        return ok(f"{len(reply.passed)} of {count} nodes pass the filter of {extender}")
    reasons = Counter(reply.failed.values()).most_common(3)
    listed = "; ".join(f"{number} {'node' if number == 1 else 'nodes'}: {reason}" for reason, number in reasons)
    if not room:
        return warning(
            "no node has room for it now, neither by the extender nor by the annotations in the cluster",
            "kubectl get pods --all-namespaces --output=wide   # which pods hold the cards",
            expected="room on a card of some node",
            found=listed,
        )
    return problem(
        f"the extender refuses every node, although by the annotations in the cluster {room} have room",
        "kubectl --namespace=default rollout restart deployment gpu-aware-scheduling",
        expected="a node that passes",
        found=listed or "no reason",
    )


PART = DoctorPart(checks=(Check(name=CHECK, title="a dry pod", findings=check_placing),))

"""Check whether a pod that asks for one card would be placed: by the extender, and by a ledger made here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from gas.doctor.checks.rebuilt_ledger import RebuiltLedger, rebuild_ledger
from gas.doctor.findings import Finding, ok, problem, unknown, warning
from gas.doctor.gpus import DryPod, dry_pod_for
from gas.doctor.probe import Unseen
from gas.doctor.snapshot import Call, Snapshot
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
    if dry_pod is None:
        return  # reported with labels and resources
    where = f"a pod that asks for {dry_pod.resource}: 1"
    count = len(dry_pod.nodes)
    refused = _refused_here(rebuild_ledger(snapshot), dry_pod)
    decided = [call for call in snapshot.calls if call.reply is not None and not call.reply.error]
    for call in decided:
        yield _decision(call, where, count, refused)
    if not decided:
        by_ledger = (
            f"according to the annotations in the cluster it would fit on {count - len(refused)} of {count} nodes"
        )
        is_here = any(call.scheduler.is_here for call in snapshot.calls)
        yield unknown(CHECK, where, f"the extender returned no decision; {by_ledger}", ASK_AGAIN if is_here else ASK)


def _refused_here(rebuilt: RebuiltLedger, dry_pod: DryPod) -> dict[str, Refusal]:
    """Return the nodes on which the pod does not fit by the ledger made here -> the reason."""
    need = DEFAULT.need(dry_pod.pod(), NeedOptions())
    results = {node: place(need, rebuilt.nodes[node].inventory, rebuilt.ledger.usage(node)) for node in dry_pod.nodes}
    return {node: result for node, result in results.items() if isinstance(result, Refusal)}


def _decision(call: Call, where: str, count: int, refused: Mapping[str, Refusal]) -> Finding:
    reply = call.reply
    passed = len(reply.passed) if reply is not None else 0
    if passed:
        return ok(CHECK, where, f"{passed} of {count} nodes pass the filter of {call.entry.url_prefix}")
    reasons = Counter(reply.failed.values() if reply is not None else ()).most_common(3)
    listed = "; ".join(f"{number} {'node' if number == 1 else 'nodes'}: {reason}" for reason, number in reasons)
    if len(refused) == count:
        return warning(
            CHECK,
            where,
            "no node has room for it now, neither by the extender nor by the annotations in the cluster",
            "kubectl get pods --all-namespaces --output=wide   # which pods hold the cards",
            expected="room on a card of some node",
            found=listed,
        )
    return problem(
        CHECK,
        where,
        f"the extender refuses every node, although by the annotations in the cluster {count - len(refused)} have room",
        "kubectl --namespace=default rollout restart deployment gpu-aware-scheduling",
        expected="a node that passes",
        found=listed or "no reason",
    )

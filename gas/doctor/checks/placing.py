"""Whether a pod that asks for one card would be placed: by the extender's own word, or by books made here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from gas.doctor.checks.books import Books, make_books
from gas.doctor.dry_pod import DryPod, dry_pod_for
from gas.doctor.findings import Finding, ok, problem, unknown, warning
from gas.doctor.looked import Unseen
from gas.doctor.snapshot import Call, Snapshot
from gas.intel.need import read_need
from gas.placement.place import place
from gas.placement.refusal import Refusal
from gas.vocabulary import NeedOptions

CHECK = "dry-pod"
ASK = "sudo gas doctor   # on the control-plane node, where kube-scheduler's certificate can be shown"

ASK_AGAIN = "gas doctor   # again, once the extender answers"


def check_placing(snapshot: Snapshot) -> Iterator[Finding]:
    if not snapshot.dry_pod or isinstance(snapshot.nodes, Unseen):
        return
    dry_pod = dry_pod_for(snapshot.nodes, snapshot.only_node)
    if dry_pod is None:
        return  # told among the labels and resources
    what = f"a pod that asks for {dry_pod.resource}: 1"
    count = len(dry_pod.nodes)
    refused = _refused_here(make_books(snapshot), dry_pod)
    answers = [call for call in snapshot.calls if call.reply is not None and not call.reply.error]
    for call in answers:
        yield _answer(call, what, count, refused)
    if not answers:
        by_books = f"by what is written in the cluster it would fit on {count - len(refused)} of {count} nodes"
        is_here = any(call.scheduler.is_here for call in snapshot.calls)
        yield unknown(CHECK, what, f"the extender could not be asked; {by_books}", ASK_AGAIN if is_here else ASK)


def _refused_here(books: Books, dry_pod: DryPod) -> dict[str, Refusal]:
    """The nodes that have no room for the pod by our own books, and why."""
    need = read_need(dry_pod.pod(), NeedOptions())
    answers = {node: place(need, books.nodes[node].inventory, books.ledger.usage(node)) for node in dry_pod.nodes}
    return {node: answer for node, answer in answers.items() if isinstance(answer, Refusal)}


def _answer(call: Call, what: str, count: int, refused: Mapping[str, Refusal]) -> Finding:
    reply = call.reply
    passed = len(reply.passed) if reply is not None else 0
    if passed:
        return ok(CHECK, what, f"{call.entry.url_prefix} would let it on {passed} of {count} nodes")
    reasons = Counter(reply.failed.values() if reply is not None else ()).most_common(3)
    told = "; ".join(f"{number} {'node' if number == 1 else 'nodes'}: {reason}" for reason, number in reasons)
    if len(refused) == count:
        return warning(
            CHECK,
            what,
            "no node has room for it now, neither by the extender nor by what is written in the cluster",
            "kubectl get pods --all-namespaces --output=wide   # who holds the cards",
            expected="room on a card of some node",
            found=told,
        )
    return problem(
        CHECK,
        what,
        f"the extender lets it on no node, although by what is written in the cluster {count - len(refused)} have room",
        "kubectl --namespace=default rollout restart deployment gpu-aware-scheduling",
        expected="a node that passes",
        found=told or "no reason",
    )

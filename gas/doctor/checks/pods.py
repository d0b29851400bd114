"""Check bound GPU pods, why others wait, and whether a pod that asks for one card would be placed."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from gas.doctor import fix
from gas.doctor.check import Check
from gas.doctor.checks.extender import kubectl_extender
from gas.doctor.findings import Finding, Unseen, about, not_seen, ok, problem, unknown, warning
from gas.doctor.gpus import dry_pod_for
from gas.doctor.snapshot import Reply, Snapshot
from gas.extender.verdicts import at_once
from gas.inspection.cluster import Cluster
from gas.inspection.objects import InspectedPod
from gas.inspection.reasons import Diagnoses
from gas.objects.stored import DetailedPod
from gas.placement.inventory import NOTHING
from gas.values.cards import Card
from gas.vocabularies.pod_checks import Known, PodChecks, counted

NOT_ASKED = ("/scheduler/filter", "/scheduler/bind", "replica of the extender", "the ledger is not complete")
"""Parts of the scheduler's message about a pod that show that the extender was not reached, or did not decide."""

ASK = "sudo gas doctor   # on the control-plane node, which has kube-scheduler's certificate"
ASK_AGAIN = "gas doctor   # again, once the extender responds"


def check_pods(snapshot: Snapshot, *, scores_nodes: bool) -> Iterator[Finding]:
    if isinstance(snapshot.pods, Unseen):
        yield not_seen("pods", snapshot.pods)
        return
    if snapshot.undecodable:
        yield unknown(
            f"{snapshot.undecodable} of them cannot be decoded and are left out",
            "kubectl get nodes,pods --all-namespaces --output=json",
            where="nodes and pods",
        )
    cluster = snapshot.cluster
    vocabularies = snapshot.vocabularies

    def is_checked(pod: DetailedPod) -> bool:
        is_here = not pod.node_name or snapshot.is_checked(pod.node_name)
        return is_here and not pod.is_over and cluster.decider.pods.needs(pod)

    bound = [pod for pod in snapshot.pods if pod.node_name and is_checked(pod)]
    yield from about("bound pods", _bound(bound, cluster))
    for node in filter(snapshot.is_checked, cluster.nodes.records):
        yield from _overbooked(node, cluster)
        yield from _wrong_company(node, cluster)
    waiting = [pod for pod in snapshot.pods if not pod.node_name and is_checked(pod)]
    nodes = counted(() if snapshot.undecodable else (facts for _, facts in cluster.decider.nodes))
    names = {name for each in snapshot.schedulers if each.entries for name in each.names}
    diagnoses = Diagnoses(cluster)
    checks = PodChecks(vocabularies, cluster.settings.options.need, scores_nodes=scores_nodes)
    in_cluster: Known = {}
    for pod in waiting:
        about_pod = checks.pod(pod)
        sentences = [f"no node can ever run it: {about_pod.bad_need}"] if about_pod.bad_need else []
        sentences += [*about_pod.faults, *about_pod.warnings]
        if not about_pod.refusals:
            sentences += at_once(checks.in_cluster(pod, nodes, in_cluster))
        found = [warning(sentence, fix.pod(pod, "describe", "pod")) for sentence in sentences]
        yield from about(f"pod {pod.key}", found if about_pod.bad_need else [*found, _waits(pod, names, diagnoses)])


def _bound(pods: Sequence[InspectedPod], cluster: Cluster) -> Iterator[Finding]:
    is_valid = True
    for pod in pods:
        if not (sentence := cluster.fault(pod)):
            continue
        is_valid = False
        where = f"pod {pod.key} on node {pod.node_name}"
        if pod.uid in cluster.decider.pods.in_trouble and cluster.decider.ledger.booking(pod.uid) is None:
            note = f"{pod.owner} creates a new one" if pod.owner else "and create it again: it has no owner"
            yield problem(sentence, fix.pod(pod, "delete", "pod", note=note), where=where)
        else:
            show = fix.pod(pod, "describe", "pod", note="and restore its annotations, or delete it")
            yield warning(sentence, show, where=where)
    if is_valid:
        yield ok(f"the annotations of all {len(pods)} with GPUs are valid")


def _overbooked(node: str, cluster: Cluster) -> Iterator[Finding]:
    facts, ledger = cluster.decider.nodes.facts(node), cluster.decider.ledger
    capacity = facts.inventory.capacity if facts is not None else {}
    for card, booked in ledger.usage(node).amounts.items():
        has = capacity.get(card, NOTHING)
        over = {name: amount for name, amount in booked.items() if amount > has.get(name, 0)}
        if over and card in capacity:
            yield problem(
                "pods hold more than the card has",
                *(fix.pod(pod, "delete", "pod", note="one of them") for pod in _holders(node, card, cluster)[:3]),
                where=f"{card} of node {node}",
                expected=", ".join(f"at most {has.get(name, 0)} {name}" for name in over),
                found=", ".join(f"{amount} {name}" for name, amount in over.items()),
            )


def _holders(node: str, card: Card, cluster: Cluster) -> list[InspectedPod]:
    bookings = cluster.decider.ledger.on_node(node).items()
    held = (cluster.pods.records[uid] for uid, booking in bookings if card in booking.footprint.amounts)
    return sorted(held, key=lambda pod: pod.key)


def _wrong_company(node: str, cluster: Cluster) -> Iterator[Finding]:
    """Report pods on one card that must not share it: kubelet gave other cards, or annotations were edited."""
    if not cluster.decider.ledger.usage(node).company:
        return
    bookings = sorted(cluster.decider.ledger.on_node(node).values(), key=lambda booking: booking.pod)
    for one, other in combinations(bookings, 2):
        shared = sorted(one.footprint.amounts.keys() & other.footprint.amounts.keys())
        ours, theirs = one.footprint.company, [other.footprint.company]
        if shared and not (ours.has_same_exclusion(theirs) and ours.has_no_anti_affinity(theirs)):
            pods = [pod for pod in _holders(node, shared[0], cluster) if pod.key in (one.pod, other.pod)]
            yield warning(
                f"the exclusion or anti-affinity of the pods {one.pod} and {other.pod} forbids that they share it",
                *(fix.pod(pod, "delete", "pod", note="one of them") for pod in pods),
                where=f"{shared[0]} of node {node}",
            )


def _waits(pod: InspectedPod, names: set[str], diagnoses: Diagnoses) -> Finding:
    scheduler = pod.spec.scheduler_name or "default-scheduler"
    if names and scheduler not in names:
        return problem(
            "its scheduler does not call the extender",
            fix.pod(pod, "describe", "pod", note="and give it another schedulerName"),
            expected=" or ".join(sorted(names)),
            found=scheduler,
        )
    scheduled = pod.condition("PodScheduled")
    message = (scheduled.message if scheduled is not None else None) or ""
    if any(words in message for words in NOT_ASKED):
        return problem(f"the extender could not decide about it: {message}", fix.pod(pod, "describe", "pod"))
    return ok(f"waits: {diagnoses.of(pod).line}")


def check_placing(snapshot: Snapshot) -> Iterator[Finding]:
    """Compare the extender's decision about the dry pod with one made from the cluster's objects."""
    if not snapshot.dry_pod or isinstance(snapshot.nodes, Unseen):
        return
    dry_pod = dry_pod_for(snapshot.nodes, snapshot.only_node)
    if dry_pod is not None:  # otherwise reported with labels and resources
        room = len(snapshot.cluster.filter(dry_pod.pod(), dry_pod.nodes).passing)
        yield from about(f"a pod that asks for {dry_pod.resource}: 1", _decisions(snapshot, len(dry_pod.nodes), room))


def _decisions(snapshot: Snapshot, count: int, room: int) -> Iterator[Finding]:
    is_decided = False
    for call in snapshot.calls:
        if call.reply is not None and not call.reply.error:
            is_decided = True
            restart = kubectl_extender(snapshot, "rollout", "restart")
            yield _decision(call.reply, call.entry.url_prefix, count, room, restart)
    if not is_decided:
        is_here = any(call.scheduler.is_here for call in snapshot.calls)
        yield unknown(
            "the extender returned no decision; according to the annotations in the cluster it would fit on"
            f" {room} of {count} nodes",
            ASK_AGAIN if is_here else ASK,
        )


def _decision(reply: Reply, extender: str, count: int, room: int, restart: str) -> Finding:
    if reply.passed:
        return ok(f"{len(reply.passed)} of {count} nodes pass the filter of {extender}")
    reasons = Counter(reply.failed.values()).most_common(3)
    listed = "; ".join(f"{number} {'node' if number == 1 else 'nodes'}: {reason}" for reason, number in reasons)
    if not room:
        return warning(
            "no node has room for it now, neither by the extender nor by the annotations in the cluster",
            "kubectl get pods --all-namespaces --output=wide   # which pods hold the cards",
            found=listed,
        )
    return problem(
        f"the extender refuses every node, although by the annotations in the cluster {room} have room",
        restart,
        found=listed or "no reason",
    )


def checks(scores_nodes: Callable[[Snapshot], bool]) -> tuple[Check, ...]:
    """Return the checks. ``scores_nodes`` returns whether the extender scores nodes, as pods may request."""

    def check(snapshot: Snapshot) -> Iterator[Finding]:
        return check_pods(snapshot, scores_nodes=scores_nodes(snapshot))

    return (
        Check(name="pods", title="pods with GPUs", findings=check),
        Check(name="dry-pod", title="a dry pod", findings=check_placing),
    )

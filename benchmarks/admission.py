"""Time that the webhooks add to the creation of a pod on the real kube-apiserver."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count

from benchmarks.clusters import Object, Size, ordinary_pod, pod
from benchmarks.real_cluster import RealCluster
from benchmarks.results import Figure, Results
from benchmarks.reviews import GPU, PLAIN, PODS, REVIEWED, Reviewing, Times, labelled, reviewing
from tests.e2e.helm import Helm
from tests.e2e.release import pinned_version
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import chart_webhooks, component_webhooks, later_webhook, unregister

SIZE = Size(nodes=5000, pods=0)
ROUNDS = 300
WARM_UP = 100
LARGE = "a GPU pod that no node could hold"
AT_ONCE = "with one webhook that decides nothing, in place of these"
SCHEDULER = "gas-scheduler"
WEBHOOKS = ("create.pods.gas", "complete.pods.gas")
REVIEWS = 3  # in each round: of a GPU pod one, and two of one that gets a warning

KINDS: Mapping[str, Callable[[str], Object]] = {
    PLAIN: ordinary_pod,
    GPU: lambda name: pod(name, {"i915": 1, "millicores": 100, "memory.max": 10**9}),
    LARGE: lambda name: pod(name, {"i915": 1, "memory.max": 10**12}),
}


def admission() -> Results:
    """Create pods of each kind one after the other, in turn with the webhooks and without."""
    with reviewing(SIZE, _registrations, f"--admission-scheduler-name={SCHEDULER}") as running:
        _wait_until_called(running)
        serial = count()

        def write(number: int, kind: str, *, reviewed: bool) -> float:
            body = KINDS[kind](f"pod-{number}-{next(serial)}")
            return running.client.create(PODS, labelled(body, reviewed=reviewed))

        times = running.measure(list(KINDS), write, rounds=ROUNDS, warm_up=WARM_UP)
        api = running.cluster.admin
        unregister(api)
        rules = component_webhooks("complete.pods.gas")[0]["webhooks"][0]["rules"]
        limits = {"rules": rules, "matchConditions": [], "objectSelector": {"matchLabels": REVIEWED}}
        with later_webhook(api, running.cluster.authority, _at_once, **limits):
            at_once = running.measure([GPU], write, rounds=ROUNDS, warm_up=WARM_UP)
        return _results(times, at_once)


def _at_once(_: Object) -> list[Object]:
    return [{"op": "add", "path": "/spec/schedulerName", "value": SCHEDULER}]


def _registrations(cluster: RealCluster) -> Sequence[Object]:
    helm = Helm(cluster.binaries / "helm", cluster.directory / "no-kubeconfig", cluster.directory)
    return chart_webhooks(helm, *WEBHOOKS, settings=f"admission.schedulerName={SCHEDULER}")


def _wait_until_called(running: Reviewing) -> None:
    numbers = iter(range(1000))

    def is_called() -> bool:
        probe = labelled(KINDS[GPU](f"probe-{next(numbers)}"), reviewed=True)
        return bool(running.cluster.admin.create(PODS, probe)["spec"]["schedulerName"] == SCHEDULER)

    wait_for("the webhooks are called", is_called)


def _results(times: Times, at_once: Times) -> Results:
    figures = [Figure.medians(f"create {kind}", times.of[kind, True], times.of[kind, False]) for kind in KINDS]
    figures += [Figure(f"added to {kind}", each.added) for kind, each in zip(KINDS, figures, strict=True)]
    figures.append(Figure.medians(f"create {GPU}, {AT_ONCE}", at_once.of[GPU, True], at_once.of[GPU, False]))
    processor = 1e3 * times.processor / REVIEWS
    figures.append(Figure("extender's processor time per review, with its watch of these pods", processor))
    title = f"Creating pods one after the other on kube-apiserver {pinned_version()}, {SIZE.nodes:,} nodes; medians"
    notes = [
        "With the chart's webhooks: /complete for every GPU pod, and /validate for one in which that finds a fault."
    ]
    return Results("admission", title, figures, ours="with webhooks", other="without", notes=notes)

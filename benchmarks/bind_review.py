"""Time that the review of a Binding adds on the real kube-apiserver, for pods without GPUs and for GPU pods."""

import time
from collections.abc import Callable, Iterable, Mapping

from benchmarks.clusters import Object, Size, ordinary_pod, pod
from benchmarks.results import Figure, Goal, Results
from benchmarks.reviews import GPU, PLAIN, PODS, Reviewing, Times, labelled, reviewing
from tests.e2e.bindings import binding
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import BIND, component_webhooks

SIZE = Size(nodes=500, pods=2000)
ROUNDS = 300
WARM_UP = 50
MOST_ADDED = 1.0
"""Milliseconds that the review of a pod without GPUs may add."""

KINDS: Mapping[str, Callable[[str], Object]] = {
    PLAIN: ordinary_pod,
    GPU: lambda name: pod(name, {"i915": 1, "millicores": 100, "memory.max": 10**8}),
}


def bind_review() -> Results:
    """Bind pods of each kind one after the other, in turn with the review and without."""
    with reviewing(SIZE, lambda _cluster: component_webhooks(BIND)) as running:
        _wait_until_called(running)
        numbers = range(WARM_UP + ROUNDS)
        each = [(number, kind, reviewed) for number in numbers for kind in KINDS for reviewed in (True, False)]
        _fill(running, ((kind, _name(number, kind, reviewed=reviewed)) for number, kind, reviewed in each))
        time.sleep(3)  # until the watch has shown them

        def write(number: int, kind: str, *, reviewed: bool) -> float:
            return _bind(
                running, _name(number, kind, reviewed=reviewed), f"node-{number % SIZE.nodes:05}", reviewed=reviewed
            )

        return _results(running.measure(list(KINDS), write, rounds=ROUNDS, warm_up=WARM_UP))


def _wait_until_called(running: Reviewing) -> None:
    probes = iter(range(1000))

    def is_called() -> bool:
        name = f"probe-{next(probes)}"
        _fill(running, [(GPU, name)])
        _bind(running, name, "node-00000", reviewed=True)
        return "gas-ts" in running.cluster.admin.get(f"{PODS}/{name}")["metadata"]["annotations"]

    wait_for("the webhook is called", is_called, every=0.5)


def _bind(running: Reviewing, name: str, node: str, *, reviewed: bool) -> float:
    body = labelled(binding(name, node, uid=name), reviewed=reviewed)
    return running.client.create(f"{PODS}/{name}/binding", body)


def _name(number: int, kind: str, *, reviewed: bool) -> str:
    return f"bind-{number}-{'gpu' if kind == GPU else 'plain'}-{int(reviewed)}"


def _fill(running: Reviewing, pods: Iterable[tuple[str, str]]) -> None:
    """Create pods whose UIDs are their names."""
    created = []
    for kind, name in pods:
        created.append(KINDS[kind](name))
        created[-1]["metadata"] |= {"uid": name, "annotations": {"made": "up"}}
    running.cluster.fill(created)


def _results(times: Times) -> Results:
    figures = [Figure.medians(f"bind {kind}", times.of[kind, True], times.of[kind, False]) for kind in KINDS]
    figures += [
        Figure(f"added to {kind}", each.added, goal=Goal(MOST_ADDED) if kind == PLAIN else None)
        for kind, each in zip(KINDS, figures, strict=True)
    ]
    figures.append(Figure("extender's processor time per Binding", 1e3 * times.processor / len(KINDS)))
    cluster = f"{SIZE.nodes:,} nodes, {SIZE.pods:,} pods"
    title = f"Bindings written one after the other on the real kube-apiserver: {cluster}; medians"
    notes = ["Without the review, a Binding of a GPU pod has no cards. The processor time includes the watch."]
    return Results("bind-review", title, figures, ours="with review", other="without", notes=notes)

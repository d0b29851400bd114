"""Time of a filter, compared with an extender on the same stack that only decodes and encodes."""

import json
import time
from collections.abc import Iterator, Sequence
from itertools import count, cycle, islice, repeat

from benchmarks.clusters import CARDS, Object, Size, node_names, nodes, pod
from benchmarks.drivers import Driver, Pair, ask_filter, at_once, in_turn
from benchmarks.feed import event
from benchmarks.results import Figure, Goal, Results
from benchmarks.stage import Stage, stage
from gas.decision import names as decision
from gas.vocabularies.intel import names
from gas.vocabularies.known import KNOWN

SIZE = Size(nodes=5000, pods=20_000)
ROUNDS = 25
CONNECTIONS = 8
CHURN_ROUNDS = 40
SETTLE = 0.1
"""Seconds until a change of nodes has reached the extender."""

SETTLE_PODS = 3.0
"""Seconds until thousands of pods have reached the extender."""

ONE_CARD = {"i915": 1, "millicores": 300, "memory.max": 10**9}
FULL_CARD = {"i915": 1, "memory.max": 16 * 10**9}


def warm() -> Results:
    """Measure a shape that was asked for before, with more and more names, and over several connections."""
    figures = []
    all_names = node_names(SIZE)
    with stage(SIZE) as running:
        pair = running.pair()
        for number, goal in ((1, None), (500, None), (5000, Goal(1.5))):
            body = question(all_names[:number])
            figures.append(_figure(f"{number:,} name{'s' * (number > 1)}, warm", pair, body, goal))
        figures.append(_figure("5,000 names, a shape never seen", pair, unseen(all_names), Goal(100)))
        figures += [_in_churn([running], pair, changed, goal) for changed, goal in ((10, Goal(2)), (100, None))]
        pairs = [running.pair() for _ in range(CONNECTIONS)]
        times = at_once(pairs, question(all_names), ROUNDS)
        figures.append(Figure.medians(f"5,000 names, {CONNECTIONS} connections at once", *times))
        for each in pairs:
            each.close()
        body = _whole_nodes()
        figures.append(_figure("500 whole nodes in the body, warm", pair, body, None))
        _make_unlike(running)
        figures.append(_figure("5,000 names, never seen, no two nodes alike", pair, unseen(all_names), Goal(100)))
        pair.close()
    title = f"`filter` over HTTP/1.1 and TLS: {SIZE.nodes:,} nodes of {CARDS} cards, {SIZE.pods:,} placed pods; medians"
    return Results("filter", title, figures)


def vocabularies() -> Results:
    """Compare an extender for pods in all vocabularies with one for Intel's alone; the pods are in Intel's words."""
    every = f"--vocabularies={','.join(each.name for each in KNOWN)}"
    all_names = node_names(SIZE)
    with stage(SIZE, every, with_bare=False) as ours, stage(SIZE, with_bare=False) as intel:
        pair = Pair(ours.driver(ours.ours.endpoint.port), intel.driver(intel.ours.endpoint.port))
        goal = Goal(1.05)
        figures = [
            _figure("500 names, warm", pair, question(all_names[:500]), goal),
            _figure("5,000 names, warm", pair, question(all_names), goal),
            _figure("5,000 names, a shape never seen", pair, unseen(all_names), goal),
            _in_churn([ours, intel], pair, 10, goal),
        ]
        pair.close()
    title = f"`filter` with {len(KNOWN)} vocabularies and with one: {SIZE.nodes:,} nodes of {CARDS} cards; medians"
    return Results("vocabularies", title, figures, ours="all of them", other="Intel's alone")


def prioritize() -> Results:
    """Compare scores of nodes with a filter of the same nodes by the same extender."""
    figures = []
    with stage(SIZE, "--node-score=balance") as running:
        driver = running.driver(running.ours.endpoint.port)
        for number, goal in ((100, None), (500, Goal(1.5)), (5000, None)):
            body = question(node_names(SIZE)[:number])
            figures.append(_scored(f"{number:,} names, warm", driver, repeat(body), goal))
        figures.append(_scored("500 names, a shape never seen", driver, unseen(node_names(SIZE)[:500]), None))
        driver.close()
    title = f"`prioritize` with `balance`: {SIZE.nodes:,} nodes of {CARDS} cards, {SIZE.pods:,} placed pods; medians"
    return Results("prioritize", title, figures, ours="prioritize", other="filter")


def _scored(what: str, driver: Driver, bodies: Iterator[bytes], goal: Goal | None) -> Figure:
    times: dict[str, list[float]] = {"filter": [], "prioritize": []}
    for body in islice(bodies, ROUNDS + 1):
        for verb, taken in times.items():
            taken.append(driver.ask(verb, body)[0])
    return Figure.medians(what, times["prioritize"][1:], times["filter"][1:], goal)


def shapes() -> Results:
    """Measure different shapes of pods: many in turn, several cards, tiles, and nodes that are full."""
    figures = []
    all_names = node_names(SIZE)
    with stage(SIZE) as running:
        pair = running.pair()
        bodies = [question(all_names, ONE_CARD | {"millicores": 200 + each}) for each in range(1000)]
        for body in bodies:
            pair.ours.ask("filter", body)
        figures.append(_figure("1,000 shapes in turn", pair, cycle(bodies), None))
        figures += _warm_and_cold("8 cards", pair, {"i915": 8, "millicores": 800})
        figures += _warm_and_cold("2 cards with 4 tiles", pair, {"i915": 2, names.TILES: 4})
        _fill_half(running)
        figures.append(_figure("half of the nodes full", pair, question(all_names, FULL_CARD), None))
        figures.append(_figure("half of the nodes full, never seen", pair, unseen(all_names, FULL_CARD), None))
        pair.close()
    title = f"`filter` of 5,000 names: {SIZE.nodes:,} nodes of {CARDS} cards, {SIZE.pods:,} placed pods; medians"
    return Results("shapes", title, figures)


def question(names_asked: Sequence[str], amounts: dict[str, int] | None = None) -> bytes:
    asked = pod("asked", amounts or ONE_CARD)
    asked["metadata"] |= {"uid": "benchmark", "annotations": {}}
    return json.dumps({"Pod": asked, "Nodes": None, "NodeNames": list(names_asked)}).encode()


def unseen(names_asked: Sequence[str], amounts: dict[str, int] | None = None) -> Iterator[bytes]:
    """Yield the same filter for a little less memory each time: a byte less on each card."""
    asked = amounts or ONE_CARD
    most = asked.get("memory.max", 10**9)
    return (question(names_asked, asked | {"memory.max": most - each * asked["i915"]}) for each in count(1))


def _figure(what: str, pair: Pair, bodies: bytes | Iterator[bytes], goal: Goal | None) -> Figure:
    if isinstance(bodies, bytes):
        pair.ours.ask("filter", bodies)  # the first filter is measured elsewhere
        bodies = repeat(bodies)
    return Figure.medians(what, *in_turn(pair, bodies, ROUNDS), goal)


def _warm_and_cold(what: str, pair: Pair, amounts: dict[str, int]) -> list[Figure]:
    all_names = node_names(SIZE)
    cold = unseen(all_names, amounts)
    return [_figure(what, pair, question(all_names, amounts), None), _figure(f"{what}, never seen", pair, cold, None)]


def _in_churn(stages: Sequence[Stage], pair: Pair, changed: int, goal: Goal | None) -> Figure:
    """Measure filters, each after some nodes have changed to a state that no node had: a little less memory."""
    body = question(node_names(SIZE))
    ours: list[float] = []
    bare: list[float] = []
    for turn in range(CHURN_ROUNDS):
        said = nodes(Size(changed, 0), less_memory=CHURN_ROUNDS * changed + turn)
        for running in stages:
            running.send("nodes", (event("MODIFIED", each) for each in said))
        time.sleep(SETTLE)
        # Whichever is asked first after the pause takes up to a sixth longer.
        for driver, times in ((pair.ours, ours), (pair.bare, bare))[:: 1 if turn % 2 else -1]:
            times.append(ask_filter(driver, body))
    what = f"5,000 names, after {changed} changed node{'s' * (changed > 1)}"
    return Figure.medians(what, ours, bare, goal)


def _fill_half(running: Stage) -> None:
    """Place on every second node a pod that leaves no memory for FULL_CARD on any card."""
    all_names = node_names(SIZE)
    running.send(
        "pods", (event("ADDED", placed(number, all_names[number], 10**9)) for number in range(1, SIZE.nodes, 2))
    )
    time.sleep(SETTLE_PODS)


def _make_unlike(running: Stage) -> None:
    """Place on every node a pod of its own size, so that no two nodes are in the same state."""
    unlike = (placed(number, name, 10**6 + number) for number, name in enumerate(node_names(SIZE)))
    running.send("pods", (event("ADDED", each) for each in unlike))
    time.sleep(SETTLE_PODS)


def placed(number: int, node: str, memory_each: int) -> Object:
    """Return a pod that is bound to a node and holds a part of all its cards."""
    more = pod(f"more-{number}", {"i915": CARDS, "memory.max": CARDS * memory_each})
    cards = ",".join(f"card{number}" for number in range(CARDS))
    more["metadata"] |= {"uid": more["metadata"]["name"], "annotations": {decision.CONTAINER_CARDS: cards}}
    more["spec"]["nodeName"] = node
    return more


def _whole_nodes() -> bytes:
    asked = pod("asked", ONE_CARD)
    return json.dumps({"Pod": asked, "Nodes": {"items": nodes(Size(500, 0))}, "NodeNames": None}).encode()

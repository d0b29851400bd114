"""Free CPU, memory and pod slots of nodes, as kube-scheduler counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.extender.assembly import watch_nodes, watch_pods
from gas.extender.bookings import Event
from gas.extender.decider import CannotBind, Decider, Options
from gas.extender.host_resources import HostFree, HostResources, pod_requests
from gas.extender.wire import BindingArgs
from gas.objects.stored import HostPod, Node
from gas.vocabularies.known import DEFAULT
from sandbox.api.kinds import NODES, PODS
from sandbox.api.server import ApiServer
from tests.background import eventually, in_background
from tests.builders import node_json, pod_json
from tests.cluster.scripted_server import connected
from tests.listed import list_all

GI = 2**30


def box(name: str = "main", /, **requests: Any) -> dict[str, Any]:
    """Return a container that requests these resources of its node."""
    return {"name": name, "resources": {"requests": requests}}


def sidecar(name: str, /, **requests: Any) -> dict[str, Any]:
    return box(name, **requests) | {"restartPolicy": "Always"}


def host_pod(
    *containers: Mapping[str, Any],
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **fields: Any,
) -> HostPod:
    sent = pod_json(*containers, **fields)
    sent["spec"].update(spec or {})
    sent["status"].update(status or {})
    return msgspec.convert(sent, HostPod)


def a_node(name: str = "n", /, **allocatable: Any) -> Node:
    return msgspec.convert({"metadata": {"name": name}, "status": {"allocatable": allocatable}}, Node)


def status_of(name: str, *, has: Mapping[str, str] | None = None, allotted: Mapping[str, str] | None = None) -> Any:
    status: dict[str, Any] = {"name": name}
    if has is not None:
        status["resources"] = {"requests": has}
    if allotted is not None:
        status["allocatedResources"] = allotted
    return status


@pytest.mark.parametrize(
    ("pod", "requests"),
    [
        pytest.param(host_pod(box()), {"pods": 1}, id="nothing-but-its-slot"),
        pytest.param(
            host_pod(box(cpu="100m", memory="1Gi"), box("two", cpu="1.5")),
            {"cpu": 1600, "memory": GI, "pods": 1},
            id="the-containers-together",
        ),
        pytest.param(
            host_pod(box(cpu=1), init=(box("a", cpu=3), box("b", cpu=2, memory=5))),
            {"cpu": 3000, "memory": 5, "pods": 1},
            id="the-largest-init-container-if-that-is-more",
        ),
        pytest.param(
            host_pod(box(cpu=1), init=(box("before", cpu=3), sidecar("side", cpu=1), box("after", cpu=3))),
            {"cpu": 4000, "pods": 1},
            id="an-init-container-beside-the-sidecars-before-it",
        ),
        pytest.param(
            host_pod(box(cpu=2), init=(sidecar("side", cpu=1), box("init", cpu=1))),
            {"cpu": 3000, "pods": 1},
            id="sidecars-beside-the-containers",
        ),
        pytest.param(
            host_pod(box(cpu=1), spec={"overhead": {"cpu": "250m", "memory": "1Gi"}}),
            {"cpu": 1250, "memory": GI, "pods": 1},
            id="the-overhead-of-its-runtime-class",
        ),
        pytest.param(
            host_pod(
                box(cpu=1, memory=7, **{"example.com/x": 2}),
                spec={"resources": {"requests": {"cpu": 3, "example.com/x": 9}}, "overhead": {"cpu": 1}},
            ),
            {"cpu": 4000, "memory": 7, "example.com/x": 2, "pods": 1},
            id="requests-of-the-pod-as-a-whole-replace-the-sum",
        ),
        pytest.param(
            host_pod(box(cpu=1), status={"containerStatuses": [status_of("main", has={"cpu": "3"})]}),
            {"cpu": 3000, "pods": 1},
            id="a-resize-downwards-that-has-not-happened-yet",
        ),
        pytest.param(
            host_pod(box(cpu=4), status={"containerStatuses": [status_of("main", has={"cpu": "1"})]}),
            {"cpu": 4000, "pods": 1},
            id="a-resize-upwards-that-has-not-happened-yet",
        ),
        pytest.param(
            host_pod(
                box(cpu=1),
                status={"containerStatuses": [status_of("main", has={"cpu": "1"}, allotted={"cpu": "2"})]},
            ),
            {"cpu": 2000, "pods": 1},
            id="what-the-node-has-allotted",
        ),
        pytest.param(
            host_pod(
                box(cpu=9),
                status={
                    "containerStatuses": [status_of("main", has={"cpu": "1"}, allotted={"cpu": "2"})],
                    "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
                },
            ),
            {"cpu": 2000, "pods": 1},
            id="an-infeasible-resize-does-not-count",
        ),
        pytest.param(
            host_pod(
                box(cpu=9),
                status={
                    "containerStatuses": [status_of("main", has={"cpu": "1"})],
                    "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}],
                },
            ),
            {"cpu": 9000, "pods": 1},
            id="a-deferred-resize-counts",
        ),
        pytest.param(
            host_pod(
                box(cpu=1),
                init=(sidecar("side", cpu=1),),
                status={"initContainerStatuses": [status_of("side", allotted={"cpu": "5"})]},
            ),
            {"cpu": 6000, "pods": 1},
            id="a-resize-of-a-sidecar",
        ),
        pytest.param(
            host_pod(
                box(cpu=1),
                spec={"resources": {"requests": {"cpu": 2}}},
                status={"resources": {"requests": {"cpu": 4}}, "allocatedResources": {"cpu": 3}},
            ),
            {"cpu": 4000, "pods": 1},
            id="a-resize-of-the-pod-as-a-whole",
        ),
        pytest.param(
            host_pod(
                box(cpu=1),
                spec={"resources": {"requests": {"cpu": 9}}},
                status={
                    "resources": {"requests": {"cpu": 4}},
                    "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
                },
            ),
            {"cpu": 4000, "pods": 1},
            id="an-infeasible-resize-of-the-pod-as-a-whole",
        ),
        pytest.param(host_pod(box(cpu="much")), {"pods": 1}, id="what-cannot-be-read-is-left-out"),
    ],
)
def test_the_requests_of_a_pod(pod: HostPod, requests: Mapping[str, int]) -> None:
    assert dict(pod_requests(pod)) == requests


AMOUNT = st.integers(0, 9)
BOX = st.fixed_dictionaries({}, optional={"cpu": AMOUNT, "memory": AMOUNT, "example.com/x": AMOUNT})


@given(
    apps=st.lists(BOX, min_size=1, max_size=3),
    inits=st.lists(st.tuples(BOX, st.booleans()), max_size=4),
    overhead=BOX,
)
def test_a_pod_requests_the_most_that_its_containers_need_at_any_moment(
    apps: list[dict[str, int]], inits: list[tuple[dict[str, int], bool]], overhead: dict[str, int]
) -> None:
    pod = host_pod(
        *(box(f"app{at}", **each) for at, each in enumerate(apps)),
        init=tuple((sidecar if always else box)(f"init{at}", **each) for at, (each, always) in enumerate(inits)),
        spec={"overhead": overhead},
    )
    moments = []
    running: list[dict[str, int]] = []
    for each, always in inits:
        moments.append([*running, each])
        if always:
            running.append(each)
    moments.append([*running, *apps])
    expected = {"pods": 1}
    for name, scale in (("cpu", 1000), ("memory", 1), ("example.com/x", 1)):
        most = max(sum(each.get(name, 0) for each in moment) for moment in moments) + overhead.get(name, 0)
        if most:
            expected[name] = most * scale
    assert dict(pod_requests(pod)) == expected


def test_free_is_what_is_offered_less_the_requests_of_pods_that_have_not_ended() -> None:
    hosts = HostResources()
    list_all(hosts.nodes, [a_node(cpu="4", memory="8Gi", pods="110", **{"example.com/x": "2"})])
    list_all(
        hosts.pods,
        [
            host_pod(box(cpu=1, memory="1Gi"), node="n", uid="runs"),
            host_pod(box(cpu=1), node="n", uid="being-deleted", deleting=True),
            host_pod(box(cpu=1), node="n", uid="failed", phase="Failed"),
            host_pod(box(cpu=1), node="n", uid="succeeded", phase="Succeeded"),
            host_pod(box(cpu=1), uid="waits"),
            host_pod(box(cpu=1), node="other", uid="elsewhere"),
        ],
    )
    assert hosts.free("n") == HostFree(cpu=2000, memory=7 * GI, pods=108)
    assert hosts.free_amounts("n") == {"cpu": 2000, "memory": 7 * GI, "pods": 108, "example.com/x": 2}
    assert hosts.free("other") is None


def test_more_may_be_requested_than_a_node_has() -> None:
    hosts = HostResources()
    hosts.nodes.changed(a_node(cpu=1))
    hosts.pods.changed(host_pod(box(cpu=3), node="n"))
    assert hosts.free("n") == HostFree(cpu=-2000, memory=0, pods=-1)


def test_changes_are_reported_and_heartbeats_are_not() -> None:
    changed: list[str] = []
    hosts = HostResources(changed.append)
    pod = host_pod(box(cpu=1), node="n", uid="u")
    hosts.nodes.changed(a_node(cpu=1))
    hosts.pods.changed(pod)
    assert changed == ["n", "n"]
    hosts.nodes.changed(a_node(cpu=1))
    hosts.pods.changed(pod)
    assert changed == ["n", "n"]
    hosts.pods.changed(host_pod(box(cpu=2), node="n", uid="u"))
    hosts.nodes.changed(a_node(cpu=2))
    hosts.pods.deleted(pod)
    hosts.pods.deleted(pod)
    hosts.nodes.deleted(a_node())
    assert changed == ["n"] * 6
    hosts.pods.changed(pod)
    hosts.pods.changed(host_pod(box(cpu=1), node="other", uid="u"))
    assert changed[6:] == ["n", "n", "other"]


def test_a_pod_about_to_be_bound_counts_until_its_bind_fails() -> None:
    hosts = HostResources()
    hosts.nodes.changed(a_node(cpu=4, pods=10))
    waiting = host_pod(box(cpu=1), uid="u")
    hosts.pods.assume(waiting, "n")
    hosts.pods.changed(waiting)  # an update of the pod as it still waits
    assert hosts.free("n") == HostFree(3000, 0, 9)
    hosts.pods.cancel("u")
    assert hosts.free("n") == HostFree(4000, 0, 10)


def test_a_pod_that_was_seen_on_its_node_is_not_cancelled() -> None:
    hosts = HostResources()
    hosts.nodes.changed(a_node(cpu=4, pods=10))
    hosts.pods.assume(host_pod(box(cpu=1), uid="u"), "n")
    hosts.pods.changed(host_pod(box(cpu=2), uid="u", node="n"))
    hosts.pods.assume(host_pod(box(cpu=1), uid="u"), "n")
    hosts.pods.cancel("u")
    assert hosts.free("n") == HostFree(2000, 0, 9)
    list_all(hosts.pods, [])
    assert hosts.free("n") == HostFree(4000, 0, 10)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["waits", "runs", "ended", "deleted", "assumed", "cancelled", "relist"]),
        st.integers(0, 3),
        st.sampled_from("ab"),
        st.integers(0, 3),
    ),
    max_size=20,
)


@given(EVENTS)
def test_the_sums_are_those_of_the_pods_after_any_history(events: list[tuple[str, int, str, int]]) -> None:
    hosts = HostResources()
    list_all(hosts.nodes, [a_node("a", cpu=99, pods=99), a_node("b", cpu=99, pods=99)])
    there: dict[str, tuple[str, int]] = {}
    assumed: set[str] = set()
    for kind, number, node, cpu in events:
        uid = f"u{number}"
        pod = host_pod(box(cpu=cpu), uid=uid, node=node if kind in ("runs", "ended") else None)
        if kind == "waits":
            hosts.pods.changed(pod)
        elif kind == "runs":
            hosts.pods.changed(pod)
            there[uid] = node, cpu
            assumed.discard(uid)
        elif kind == "ended":
            hosts.pods.changed(host_pod(box(cpu=cpu), uid=uid, node=node, phase="Succeeded"))
            there.pop(uid, None)
        elif kind == "deleted":
            hosts.pods.deleted(pod)
            there.pop(uid, None)
        elif kind == "assumed":
            hosts.pods.assume(pod, node)
            if uid not in there:
                there[uid] = node, cpu
                assumed.add(uid)
        elif kind == "cancelled":
            hosts.pods.cancel(uid)
            if uid in assumed:
                there.pop(uid, None)
        else:
            list_all(
                hosts.pods,
                [host_pod(box(cpu=cpu), uid=uid, node=node) for uid, (node, cpu) in there.items() if uid != "u0"],
            )
            there.pop("u0", None)
            assumed.clear()
        assumed &= there.keys()
    counted: Counter[str] = Counter()
    slots: Counter[str] = Counter()
    for node, cpu in there.values():
        counted[node] += 1000 * cpu
        slots[node] += 1
    for node in "ab":
        assert hosts.free(node) == HostFree(99_000 - counted[node], 0, 99 - slots[node])


def test_a_bind_counts_the_pod_on_its_node_and_a_failed_one_takes_it_back() -> None:
    decider = Decider(Options(vocabularies=DEFAULT))
    decider.count_hosts()
    node = node_json("n", cards=1)
    node["status"]["allocatable"] |= {"cpu": "4", "pods": "10"}
    decider.node_handlers.changed(msgspec.convert(node, Node))
    pod = host_pod(box(cpu=1, **{"gpu.intel.com/i915": 1}), uid="u")
    args = BindingArgs("pod", "default", "u", "n")
    decider.reserve(args, pod, now=1.0)
    assert decider.hosts.free("n") == HostFree(3000, 0, 9)
    with pytest.raises(CannotBind):
        decider.reserve(args, pod, now=1.0)
    decider.bookings.report("u", Event.REFUSED)
    assert decider.hosts.free("n") == HostFree(4000, 0, 10)
    decider.reserve(BindingArgs("pod", "default", "plain", "n"), host_pod(box(cpu=1), uid="plain"), now=1.0)
    assert decider.hosts.free("n") == HostFree(3000, 0, 9)
    decider.bookings.report("plain", Event.REFUSED)
    assert decider.hosts.free("n") == HostFree(4000, 0, 10)


def test_hosts_are_counted_first_and_only_if_asked_for() -> None:
    decider = Decider(Options(vocabularies=DEFAULT))
    assert (*decider.pod_handlers, *decider.node_handlers) == (decider.pods, decider.nodes)
    decider.count_hosts()
    assert [*decider.pod_handlers] == [decider.hosts.pods, decider.pods]
    assert [*decider.node_handlers] == [decider.hosts.nodes, decider.nodes]


async def test_the_watches_feed_all_pods_with_a_node(tmp_path: Path) -> None:
    async with ApiServer() as server, connected(server.url, tmp_path) as api:
        decider = Decider(Options(vocabularies=DEFAULT))
        decider.count_hosts()
        hosts = decider.hosts
        node = node_json("n", cards=1)
        for amounts in node["status"].values():
            amounts.update(cpu="4", pods="10")
        server.api.create(NODES, None, node)
        watches = (watch_nodes(api, decider), watch_pods(api, decider))
        async with in_background(*(watch.run() for watch in watches)):
            plain = pod_json(box(cpu=1) | {"image": "example/main:1"}, name="plain")
            del plain["metadata"]["uid"]
            server.api.create(PODS, "default", plain | {"spec": plain["spec"] | {"nodeName": "n"}})
            await eventually(lambda: hosts.free("n") == HostFree(3000, 0, 9))
            server.api.delete(PODS, "default", "plain", {"gracePeriodSeconds": 0})
            await eventually(lambda: hosts.free("n") == HostFree(4000, 0, 10))

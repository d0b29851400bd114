"""Which pods pass on nodes that DRA serves, and what a bind does there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gas.extender.decider import Options
from gas.extender.device_classes.device_classes import BY_PLUGIN, DeviceClasses, only_counts
from gas.objects.stored import DeviceClass
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.hami.vocabulary import HAMI
from gas.vocabularies.known import KNOWN
from gas.vocabularies.protocol import NeedOptions
from tests.builders import container, described_node, node_json, pod_json, requesting
from tests.builders import pod as built_pod
from tests.extender.decider import DrivenDecider, booked_cards, following

I915, XE, NVIDIA = "gpu.intel.com/i915", "gpu.intel.com/xe", "nvidia.com/gpu"
OPTIONS = Options(
    vocabularies=Vocabularies(
        each for each in KNOWN if each.name in ("intel", "aliyun", "vendor", "koordinator", "kubeshare")
    )
)
NO_CARD = "the node has no known GPU card"


def device_class(resource: str | None, name: str = "gpu", created: str = "2026-01-01T00:00:00Z") -> DeviceClass:
    spec = {} if resource is None else {"extendedResourceName": resource}
    return msgspec.convert({"metadata": {"name": name, "creationTimestamp": created}, "spec": spec}, DeviceClass)


def with_classes(*resources: str | None, nodes: list[dict[str, Any]]) -> DrivenDecider:
    decider = following(nodes, options=OPTIONS)
    classes = DeviceClasses(decider)
    for number, resource in enumerate(resources):
        classes.changed(device_class(resource, f"class-{number}"))
    decider.add(classes.hooks)
    return decider


def claimed(pod: dict[str, Any], *resources: str) -> dict[str, Any]:
    """Return a pod as kube-scheduler has written its status before the bind to a node that DRA serves."""
    mappings = [
        {"containerName": "main", "resourceName": each, "requestName": "container-0-request-0"} for each in resources
    ]
    claim = {"resourceClaimName": "pod-extended-resources-x", "requestMappings": mappings}
    return {**pod, "status": {**pod["status"], "extendedResourceClaimStatus": claim}}


def stated(name: str, capacity: dict[str, str], allocatable: dict[str, str]) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "status": {"capacity": {"cpu": "8", **capacity}, "allocatable": {"cpu": "8", **allocatable}},
    }


DRIVERS = {"metadata": {"name": "dra"}, "status": {"allocatable": {"cpu": "8"}, "capacity": {"cpu": "8"}}}


@pytest.mark.parametrize(
    ("resource", "pod"),
    [
        pytest.param(I915, pod_json(container(i915=1)), id="i915"),
        pytest.param(XE, pod_json(container(xe=2)), id="xe"),
        pytest.param(NVIDIA, pod_json(requesting({NVIDIA: "1"})), id="nvidia"),
        pytest.param(I915, pod_json(container(), init=(container("init", i915=1),)), id="only-an-init-container"),
        pytest.param(I915, pod_json(container(i915=1, xe=0)), id="0-of-another-resource"),
        pytest.param(
            I915, pod_json(container(i915=1), annotations={"gas-card-near": "true", "x": "y"}), id="preferences"
        ),
    ],
)
async def test_a_pod_that_asks_for_counts_passes_where_a_class_stands_for_them(
    resource: str, pod: dict[str, Any]
) -> None:
    zero = stated("zero", {resource: "0"}, {resource: "0"})  # a plugin served the node before kubelet was restarted
    assert (await with_classes(resource, nodes=[DRIVERS, zero]).ask(pod, "dra", "zero"))["NodeNames"] == ["dra", "zero"]
    without = await with_classes(None, "example.com/gpu", nodes=[DRIVERS]).ask(pod, "dra")
    assert without["FailedNodes"] == {"dra": NO_CARD}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(pod_json(container(i915=1, memory_max=1000)), id="memory"),
        pytest.param(pod_json(container(i915=1, millicores=100)), id="millicores"),
        pytest.param(pod_json(container(i915=1), container("second", i915=1, tiles=1)), id="tiles"),
        pytest.param(pod_json(container(i915=1, i915_monitoring=1)), id="monitoring"),
        pytest.param(
            pod_json(container(i915=1), annotations={"gas-allocate-single-numa": ""}), id="a-rule-in-an-annotation"
        ),
        pytest.param(pod_json(container(i915=1), annotations={"gas-card-order": "x"}), id="an-unreadable-need"),
        pytest.param(pod_json(container(xe=1)), id="a-resource-without-a-class"),
        pytest.param(pod_json(container(i915="x")), id="an-unreadable-amount"),
        pytest.param(pod_json(requesting({"aliyun.com/gpu-mem": 4})), id="a-part-that-a-class-stands-for"),
        pytest.param(
            pod_json(container(), annotations={"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1.0"}),
            id="a-part-in-annotations",
        ),
    ],
)
async def test_a_pod_that_asks_for_more_never_passes_there(pod: dict[str, Any]) -> None:
    decider = with_classes(I915, NVIDIA, "aliyun.com/gpu-mem", nodes=[DRIVERS])
    assert (await decider.ask(pod, "dra"))["NodeNames"] == []
    assert decider.refused


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(node_json("away", i915=0, millicores=1000), id="labels-of-cards"),
        pytest.param(described_node("away", {I915: 0}, memory=[8]), id="records-of-cards"),
        pytest.param(stated("away", {I915: "2"}, {I915: "0"}), id="kubelet-waits-for-the-plugin"),
    ],
)
async def test_a_node_whose_plugin_is_away_is_not_taken_for_a_drivers(node: dict[str, Any]) -> None:
    assert (await with_classes(I915, nodes=[node]).ask(pod_json(container(i915=1)), "away"))["NodeNames"] == []


async def test_nodes_of_both_pass_together_and_whole_nodes_as_well() -> None:
    decider, pod = with_classes(I915, nodes=[node_json("plugin"), DRIVERS]), pod_json(container(i915=1))
    assert (await decider.ask(pod, "plugin", "dra"))["NodeNames"] == ["plugin", "dra"]
    sent = await decider.ask_whole(pod, {**DRIVERS, "metadata": {"name": "new"}}, node_json("new-too"))
    assert set(sent["NodeNames"]) == {"new", "new-too"}
    assert not decider.refusals


async def test_a_bind_with_a_claim_books_nothing_and_removes_outdated_cards() -> None:
    """The pod's template has the annotations of another pod."""
    decider = with_classes(I915, nodes=[node_json("plugin", cards=1), DRIVERS])
    forged = {"gas-container-cards": "card0", "gas-ts": "1"}
    pod = claimed(pod_json(container(i915=1), annotations=forged), I915)
    decider.cluster.add(pod)
    assert await decider.bind(pod, "dra") == ""
    (binding,) = decider.cluster.bindings
    assert binding["annotations"] == dict.fromkeys(forged, "")
    uid = pod["metadata"]["uid"]
    assert booked_cards(decider, uid) == "nothing"
    assert not decider.pods.in_trouble
    assert not decider.pods.needs(decider.cluster.pod("default/pod"))


async def test_a_claim_that_the_watch_has_not_shown_yet_is_read() -> None:
    """kube-scheduler writes the status right before it asks for the bind."""
    decider, pod = with_classes(I915, nodes=[DRIVERS]), pod_json(container(i915=1))
    decider.cluster.add(pod)
    decider.cluster.on_change = lambda _event, _pod: None
    decider.cluster.edit("default/pod", lambda each: each.update(status=claimed(pod, I915)["status"]))
    assert await decider.bind(pod, "dra") == ""
    assert decider.cluster.pods["default/pod"]["spec"]["nodeName"] == "dra"


async def test_the_status_of_the_pod_decides_and_not_the_node() -> None:
    """Between kube-scheduler's look and the bind, the node may have changed hands."""
    decider = with_classes(I915, nodes=[node_json("plugin", cards=1), DRIVERS])
    unclaimed, late = pod_json(container(i915=1), name="a"), claimed(pod_json(container(i915=1), name="b"), I915)
    other = claimed(pod_json(container(i915=1), name="c"), "example.com/nic")
    for each in (unclaimed, late, other):
        decider.cluster.add(each)
    assert NO_CARD in await decider.bind(unclaimed, "dra")
    assert BY_PLUGIN in await decider.bind(late, "plugin")
    assert await decider.bind(other, "plugin") == ""  # its claim is for something else
    assert booked_cards(decider, other["metadata"]["uid"]) == "card0 on plugin, held"
    assert "not known" in await decider.bind(late, "gone")


async def test_a_pod_with_a_claim_of_an_earlier_attempt_passes_only_where_dra_serves() -> None:
    """The claim stays in its status, so kubelet would wait for it on any node."""
    decider, pod = with_classes(I915, nodes=[node_json("plugin"), DRIVERS]), claimed(pod_json(container(i915=1)), I915)
    answer = await decider.ask(pod, "plugin", "dra")
    assert (answer["NodeNames"], answer["FailedNodes"]) == (["dra"], {"plugin": BY_PLUGIN})


async def test_only_a_bind_that_books_is_waited_for() -> None:
    decider = with_classes(I915, nodes=[node_json("plugin"), DRIVERS])
    await decider.ask(pod_json(container(i915=1)), "dra")
    assert not decider.pending_binds._until
    await decider.ask(pod_json(container(i915=1)), "plugin", "dra")
    assert decider.pending_binds._until


def test_the_newest_class_counts_then_the_first_by_name_until_it_is_gone() -> None:
    classes = DeviceClasses(following([]))
    older, newer = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    first, second, old = (device_class(I915, name, at) for name, at in (("b", newer), ("c", newer), ("a", older)))
    for each in (second, first, old, device_class("example.com/gpu", "z")):
        classes.changed(each)
    assert classes.of_resource == {I915: "b"}
    classes.deleted(first)
    assert classes.of_resource == {I915: "c"}
    classes.changed(device_class(None, "c", newer))
    assert classes.of_resource == {I915: "a"}


@pytest.mark.parametrize(
    ("asked", "counts"),
    [({}, True), ({"nvidia.com/gpumem": 3000}, False), ({"nvidia.com/gpucores": 30}, False)],
)
def test_a_whole_card_in_words_of_parts_is_a_count(asked: dict[str, int], counts: bool) -> None:
    need = Vocabularies((HAMI,)).need(built_pod(requesting({NVIDIA: 1, **asked})), NeedOptions())
    assert only_counts(need) is counts

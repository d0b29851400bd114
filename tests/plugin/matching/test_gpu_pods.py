"""The GPU pods of one node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gas.objects.stored import Pod
from gas.placement.choice import ContainerChoice
from gas.placement.need import ContainerNeed, PodNeed, Role, Scope
from gas.placement.ratio import Ratio
from gas.plugin.kubelet.pod_resources import ContainerIds
from gas.plugin.matching.gpu_pods import Demand, GpuPod, GpuPods, gpu_pod
from gas.values.amounts import MEMORY_MAX
from gas.values.card_facts import CardFacts
from gas.values.cards import Card
from gas.vocabularies.aliyun.vocabulary import ALIYUN
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.intel.vocabulary import INTEL
from gas.vocabularies.known import DEFAULT
from tests.builders import container
from tests.listed import list_all
from tests.made_up import MADE_UP, SLICE
from tests.plugin.pods_for_plugin import I915, WITHOUT_DEVICES, XE, decided, ids, node_pod, seen

ONE = container("c", i915=1)
HAS_CARD: ContainerIds = {"c": {I915: ids("card0-0")}}


# contract P3.4
def test_demands_are_in_the_order_in_which_kubelet_starts_containers() -> None:
    pod = seen(
        container("app", i915=2),
        container("idle"),
        container("late", i915=1),
        init=(container("init", i915=1), container("side", always=True, i915=3)),
    )

    assert pod.demands == (
        Demand(0, "init", Role.INIT, I915, 1),
        Demand(1, "side", Role.SIDECAR, I915, 3),
        Demand(2, "app", Role.APP, I915, 2),
        Demand(4, "late", Role.APP, I915, 1),
    )


@pytest.mark.parametrize(
    "containers",
    [
        pytest.param([container("c")], id="no-resource"),
        pytest.param([container("c", millicores=100)], id="no-count"),
        pytest.param([container("c", monitoring=1)], id="monitoring-gives-no-card"),
        pytest.param([container("c", i915=0)], id="a-count-of-0"),
        pytest.param([container("c", i915="many")], id="a-count-that-is-not-a-number"),
    ],
)
def test_a_pod_without_cards_is_only_known_by_name(containers: list[dict[str, Any]]) -> None:
    pods = GpuPods(DEFAULT)
    pods.changed(node_pod(*containers, name="web"))

    assert list(pods) == []
    assert pods.has_seen("default/web")


def test_a_pod_that_asks_for_both_resources_is_served_with_what_the_original_decided() -> None:
    pod = seen(container("c", i915=1, xe=2), annotations=decided("card0,card1"))

    assert [(want.resource, want.count) for want in pod.demands] == [(I915, 1), (XE, 2)]
    assert pod.decided_for(0) == ContainerChoice((Card(0), Card(1)))
    assert pod.trouble == ""


def test_the_decision_is_read_by_container() -> None:
    pod = seen(
        container("a", i915=1),
        container("none"),
        container("b", i915=2, tiles=2),
        init=(container("i", i915=1),),
        annotations=decided("card0||card1,card0", init="card0", tiles="||card1:gt1,card0:gt0", ts=42),
    )

    assert [pod.decided_for(index) for index in range(4)] == [
        ContainerChoice((Card(0),)),
        ContainerChoice((Card(0),)),
        None,
        ContainerChoice((Card(1), Card(0)), ((1,), (0,))),
    ]
    assert pod.timestamp == 42
    assert pod.trouble == ""


def test_init_containers_may_be_undecided_beside_decided_app_containers() -> None:
    pod = seen(container("a", i915=1), init=(container("i", i915=1),), annotations=decided("card0"))

    assert pod.decided_for(0) is None
    assert pod.decided_for(1) == ContainerChoice((Card(0),))


def test_a_pod_whose_need_cannot_be_read_is_served_nevertheless() -> None:
    pod = seen(container("c", i915=1), container("d", i915="1.5"), annotations=decided("card0"))
    assert pod.demands == (Demand(0, "c", Role.APP, I915, 1),)
    assert (pod.need, pod.decided) == (None, None)
    assert pod.trouble.startswith("its need cannot be read: ")


def test_malformed_tiles_do_not_cost_a_pod_its_cards() -> None:
    pod = seen(container("c", i915=1, tiles=1), annotations=decided("card1", tiles="card1:tile0"))

    assert pod.decided_for(0) == ContainerChoice((Card(1),))
    assert pod.trouble.startswith("the tiles of its decision cannot be read: annotation gas-container-tiles: ")


@pytest.mark.parametrize(
    ("annotations", "trouble"),
    [
        pytest.param({}, "", id="nothing-written"),
        pytest.param(decided("card0,card1"), "expected 1 card(s)", id="more-cards-than-asked"),
        pytest.param(decided("../../dev"), "expected card names", id="no-card-name"),
        pytest.param(decided("card0|card1"), "expected 1 container(s)", id="more-containers-than-there-are"),
    ],
)
def test_an_invalid_annotation_does_not_count_as_a_decision(annotations: dict[str, str], trouble: str) -> None:
    pod = seen(container("c", i915=1), annotations=annotations)

    assert pod.decided is None
    assert trouble in pod.trouble
    assert bool(trouble) == bool(pod.trouble)


# contract P3.2
@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        pytest.param("1700000000000000000", 1_700_000_000_000_000_000, id="nanoseconds"),
        pytest.param("9", 9, id="a-number-not-a-text"),
        pytest.param("-1", None, id="negative"),
        pytest.param("1e9", None, id="no-decimal"),
        pytest.param("\u0661", None, id="other-digits"),
        pytest.param(str(2**63), None, id="over-64-bits"),
        pytest.param("9" * 400, None, id="endless"),
    ],
)
def test_gas_ts_is_a_number(text: str, timestamp: int | None) -> None:
    assert seen(container("c", i915=1), annotations=decided("card0", ts=text)).timestamp == timestamp


# contract A1.13
@pytest.mark.parametrize(
    ("annotations", "timestamp"),
    [
        pytest.param({"ALIYUN_COM_GPU_MEM_ASSUME_TIME": "7"}, 7, id="aliyuns"),
        pytest.param({"ALIYUN_COM_GPU_MEM_ASSUME_TIME": "7", "gas-ts": "9"}, 9, id="its-plugin-writes-it-again"),
    ],
)
def test_the_time_of_another_systems_decision_counts(annotations: dict[str, str], timestamp: int) -> None:
    asking = {"name": "c", "resources": {"requests": {"aliyun.com/gpu-mem": "100"}}}
    pod = gpu_pod(node_pod(asking, annotations=annotations), Vocabularies([ALIYUN]))
    assert pod is not None
    assert pod.timestamp == timestamp


def test_another_system_decides_by_the_position_of_a_card() -> None:
    asking = {"name": "c", "resources": {"requests": {"aliyun.com/gpu-mem": "2"}}}
    gpus = [CardFacts(card=Card(number), driver="i915", device_id="0x56c0", memory=2**34) for number in (3, 5)]
    pods = GpuPods(Vocabularies([ALIYUN]), gpus=lambda: gpus)
    pods.changed(node_pod(asking, uid="u", annotations={"ALIYUN_COM_GPU_MEM_IDX": "1"}))
    pod = pods.get("u")
    assert pod is not None
    assert pod.decided_for(0) == ContainerChoice((Card(5),))
    assert pod.unmarked == {"ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
    told: list[GpuPod] = []
    pods.subscribe(lambda: told.extend(pods))
    gpus.insert(0, replace(gpus[0], card=Card(1)))
    pods.cards_changed()
    assert [pod.decided_for(0) for pod in told] == [ContainerChoice((Card(3),))]


@pytest.mark.parametrize(
    ("fields", "is_admitted"),
    [
        pytest.param({}, False, id="bound"),
        pytest.param({"started": True}, True, id="kubelet-has-written-its-status"),
        pytest.param({"phase": "Running"}, True, id="running"),
    ],
)
def test_a_pod_is_admitted_once_kubelet_has_written_its_status(fields: dict[str, Any], is_admitted: bool) -> None:
    assert seen(container("c", i915=1), **fields).is_admitted is is_admitted


def test_the_number_of_ids_of_one_card_is_the_amount_of_the_count_resource_in_the_need() -> None:
    made_up = {"name": "c", "resources": {"requests": {SLICE: "3"}}}
    pod = gpu_pod(node_pod(made_up), Vocabularies([INTEL, MADE_UP]))

    assert pod is not None
    assert pod.demands == (Demand(0, "c", Role.APP, SLICE, 3, per_card=3),)


class TestWatch:
    def test_an_ended_pod_is_dropped(self) -> None:
        pods = GpuPods(DEFAULT)
        pods.changed(node_pod(container(i915=1), uid="u"))
        pods.changed(node_pod(container(i915=1), uid="u", phase="Failed"))

        assert pods.get("u") is None
        assert pods.has_seen("default/pod")

    def test_a_deleted_pod_is_forgotten(self) -> None:
        pods = GpuPods(DEFAULT)
        pods.changed(node_pod(container(i915=1), uid="u"))
        for _ in range(2):
            pods.deleted(node_pod(container(i915=1), uid="u"))

        assert len(pods) == 0
        assert not pods.has_seen("default/pod")

    @pytest.mark.parametrize(
        ("gone", "containers", "is_new"),
        [
            pytest.param(node_pod(ONE, started=True), HAS_CARD, False, id="it-still-has-its-card"),
            pytest.param(node_pod(ONE, phase="Succeeded"), HAS_CARD, False, id="it-had-ended-and-still-has-its-card"),
            pytest.param(node_pod(ONE), WITHOUT_DEVICES, False, id="kubelet-had-not-come-to-it"),
            pytest.param(node_pod(container("c"), started=True), WITHOUT_DEVICES, False, id="it-wanted-no-card"),
            pytest.param(node_pod(ONE, started=True), WITHOUT_DEVICES, True, id="the-next-of-that-name"),
            pytest.param(node_pod(ONE, phase="Failed"), WITHOUT_DEVICES, True, id="the-next-after-one-that-ended"),
        ],
    )
    def test_a_pod_deleted_a_moment_ago_is_not_unwatched(
        self, gone: Pod, containers: ContainerIds, *, is_new: bool
    ) -> None:
        pods = GpuPods(DEFAULT)
        assert pods.is_unwatched("default/pod", containers)
        pods.changed(gone)
        assert not pods.is_unwatched("default/pod", containers)
        pods.deleted(gone)
        assert pods.is_unwatched("default/pod", containers) is is_new
        pods.changed(gone)
        list_all(pods, [])
        assert pods.is_unwatched("default/pod", containers) is is_new

    def test_pods_that_have_not_ended_are_present_once_all_are_known(self) -> None:
        pods = GpuPods(DEFAULT)
        listed = [node_pod(ONE, name="a", uid="a"), node_pod(container("c"), name="b", uid="b")]
        pods.listed(listed)
        assert pods.present() is None
        over = node_pod(ONE, name="over", uid="o", phase="Failed")
        list_all(pods, [*listed, over])
        assert pods.present() == ["default/a", "default/b"]
        pods.deleted(over)
        pods.changed(node_pod(ONE, name="over", uid="o"))
        assert pods.present() == ["default/a", "default/b", "default/over"]

    def test_a_deleted_pod_is_remembered_for_a_minute(self) -> None:
        now = 1000.0
        pods = GpuPods(DEFAULT, clock=lambda: now)
        gone = node_pod(ONE, started=True)
        pods.changed(gone)
        pods.deleted(gone)
        assert not pods.has_seen("default/pod")
        now += 59
        assert not pods.is_unwatched("default/pod", HAS_CARD)
        now += 2
        assert pods.is_unwatched("default/pod", HAS_CARD)

    def test_of_a_pod_that_is_shown_again_it_is_not_known_that_it_had_a_card(self) -> None:
        pods = GpuPods(DEFAULT)
        for shown in (node_pod(ONE, uid="u", started=True), node_pod(ONE, uid="u")):
            pods.changed(shown)
            pods.deleted(shown)
        assert not pods.is_unwatched("default/pod", WITHOUT_DEVICES)

    def test_the_end_of_an_older_pod_of_that_name_does_not_matter(self) -> None:
        pods = GpuPods(DEFAULT)
        pods.changed(node_pod(ONE, uid="first", started=True))
        pods.changed(node_pod(ONE, uid="second"))
        pods.deleted(node_pod(ONE, uid="first", started=True))
        assert not pods.is_unwatched("default/pod", WITHOUT_DEVICES)

    def test_pods_missing_in_a_complete_list_are_removed(self) -> None:
        pods = GpuPods(DEFAULT)
        pods.changed(node_pod(container(i915=1), uid="u", name="old"))
        pods.changed(node_pod(container("c"), uid="w", name="web"))
        list_all(pods, [node_pod(container(i915=1), uid="v", name="new")])

        assert [pod.key for pod in pods] == ["default/new"]
        assert not pods.has_seen("default/old")
        assert not pods.has_seen("default/web")

    def test_a_recreated_pod_is_another_pod(self) -> None:
        pods = GpuPods(DEFAULT)
        pods.changed(node_pod(container(i915=1), uid="first"))
        pods.changed(node_pod(container(i915=2), uid="second"))
        pods.deleted(node_pod(container(i915=1), uid="first"))

        assert [pod.uid for pod in pods] == ["second"]
        assert pods.has_seen("default/pod")

    def test_every_event_is_reported(self) -> None:
        told: list[int] = []
        pods = GpuPods(DEFAULT)
        pods.subscribe(lambda: told.append(len(pods)))
        list_all(pods, [node_pod(container(i915=1), uid="a")])
        pods.changed(node_pod(container(i915=1), uid="b"))
        pods.deleted(node_pod(container(i915=1), uid="b"))

        assert told == [1, 1, 2, 1]  # a part of a list, its end, and two events


class TestRequestedMemory:
    GPUS = (
        CardFacts(card=Card(0), driver="i915", device_id="0x56c0", memory=16_000),
        CardFacts(card=Card(1), driver="i915", device_id="0x56c0", memory=8_000),
    )

    def test_it_is_that_of_the_decided_cards(self) -> None:
        pod = seen(container("c", i915=2, memory_max=5000), annotations=decided("card0,card1"))
        assert pod.requested_memory(self.GPUS) == {Card(0): 2500, Card(1): 2500}

    def test_a_receipt_counts_more_than_the_decision(self) -> None:
        annotations = decided("card0") | {"gas-allocated-cards": "card1"}
        pod = seen(container("c", i915=1, memory_max=5000), annotations=annotations)
        assert pod.requested_memory(self.GPUS) == {Card(1): 5000}

    def test_a_receipt_that_cannot_be_read_does_not(self) -> None:
        annotations = decided("card0") | {"gas-allocated-cards": "card1|card2|card3"}
        pod = seen(container("c", i915=1, memory_max=5000), annotations=annotations)
        assert pod.requested_memory(self.GPUS) == {Card(0): 5000}

    def test_a_part_of_a_card_depends_on_the_card(self) -> None:
        pod = seen(ONE, annotations=decided("card1"))
        half = ContainerNeed("c", count=1, ratios=(Ratio(MEMORY_MAX, 50),))
        assert replace(pod, need=PodNeed((half,))).requested_memory(self.GPUS) == {Card(1): 4000}

    def test_a_pod_without_need_or_cards_requests_none(self) -> None:
        assert seen(ONE, annotations=decided("card0")).requested_memory(self.GPUS) == {Card(0): 0}
        assert seen(container("c", i915=1, memory_max=5000)).requested_memory(self.GPUS) == {}
        assert replace(seen(ONE, annotations=decided("card0")), need=None).requested_memory(self.GPUS) == {}

    def test_the_share_of_a_container_is_that_of_the_pod_if_all_have_one_card(self) -> None:
        pod = seen(container("c", i915=1, memory_max=5000), container("d", i915=1, millicores=300, memory_max=1000))
        of_container = {"i915": 1, "memory.max": 5000}
        assert pod.share(0, self.GPUS) == {Card(0): of_container, Card(1): of_container}
        assert pod.need is not None
        of_one_card = replace(pod, need=replace(pod.need, scope=Scope.CARD))
        assert of_one_card.share(0, self.GPUS[:1]) == {Card(0): {**of_container, "millicores": 300}}
        half = ContainerNeed("c", count=1, ratios=(Ratio(MEMORY_MAX, 50),))
        assert replace(pod, need=PodNeed((half,), scope=Scope.CARD)).share(0, self.GPUS[1:]) == {
            Card(1): {"memory.max": 4000}
        }
        assert replace(pod, need=None).share(0, self.GPUS) == {}

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.plugin.devices.device_lists import (
    MOST_BYTES,
    Device,
    DeviceLists,
    ListTooLong,
    Monitoring,
    check_lengths,
    device_lists,
    monitored,
    monitoring_resources,
)
from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.values.card_facts import CardFacts
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.known import DEFAULT
from gas.vocabularies.protocol import DeviceOptions
from gas.vocabularies.selection import parse_vocabularies
from tests.plugin.gpus import linked_gpu as gpu
from tests.plugin.pods_for_plugin import I915, XE


def lists_of(
    gpus: Collection[CardFacts], *, shared_dev_num: int, monitoring: Monitoring, topology_hints: bool = False
) -> DeviceLists:
    options = DeviceOptions(shared_dev_num=shared_dev_num)
    return device_lists(gpus, DEFAULT, options, monitoring, topology_hints=topology_hints)


# contract D1.3, P2.3
def test_each_card_has_as_many_ids_as_containers_may_share_it() -> None:
    lists = lists_of([gpu(10), gpu(2)], shared_dev_num=2, monitoring=Monitoring.NONE)
    assert {resource: [device.id for device in devices] for resource, devices in lists.items()} == {
        I915: ["card2-0", "card2-1", "card10-0", "card10-1"]
    }


# contract P2.1
def test_a_node_with_cards_of_both_drivers_offers_both() -> None:
    lists = lists_of([gpu(0), gpu(1, "xe")], shared_dev_num=1, monitoring=Monitoring.NONE)
    assert lists == {I915: (Device(id="card0-0", healthy=True),), XE: (Device(id="card1-0", healthy=True),)}


def test_a_resource_without_any_card_is_missing() -> None:
    assert lists_of([], shared_dev_num=4, monitoring=Monitoring.ONE) == {}


# contract D1.3
def test_every_id_of_an_unhealthy_card_is_unhealthy_and_stays() -> None:
    lists = lists_of([gpu(0, healthy=False), gpu(1)], shared_dev_num=2, monitoring=Monitoring.NONE)
    assert [(device.id, device.healthy) for device in lists[I915]] == [
        ("card0-0", False),
        ("card0-1", False),
        ("card1-0", True),
        ("card1-1", True),
    ]


# contract P2.4
@pytest.mark.parametrize(
    ("topology_hints", "expected"),
    [pytest.param(True, [1, None], id="on-request"), pytest.param(False, [None, None], id="not-by-default")],
)
def test_topology_hints_carry_the_numa_node(*, topology_hints: bool, expected: list[int | None]) -> None:
    gpus = [gpu(0, numa_node=1), gpu(1, numa_node=None)]
    lists = lists_of(gpus, shared_dev_num=1, monitoring=Monitoring.NONE, topology_hints=topology_hints)
    assert [device.numa_node for device in lists[I915]] == expected


# contract P2.5
def test_monitoring_is_one_id_for_all_cards() -> None:
    gpus = [gpu(0), gpu(1, "xe", numa_node=1)]
    lists = lists_of(gpus, shared_dev_num=3, monitoring=Monitoring.ONE, topology_hints=True)
    assert lists["gpu.intel.com/monitoring"] == (Device(id="all", healthy=True, numa_node=None),)


# contract P2.5
def test_split_monitoring_is_one_resource_per_driver() -> None:
    gpus = [gpu(2, "xe"), gpu(1), gpu(0)]
    lists = lists_of(gpus, shared_dev_num=1, monitoring=Monitoring.SPLIT)
    assert set(lists) == {I915, XE, f"{I915}_monitoring", f"{XE}_monitoring"}
    assert {
        resource: [each.card for each in watched]
        for resource, watched in monitored(gpus, DEFAULT, Monitoring.SPLIT).items()
    } == {
        f"{I915}_monitoring": [0, 1],
        f"{XE}_monitoring": [2],
    }


def test_monitoring_is_healthy_while_any_card_is() -> None:
    sick, well = gpu(0, healthy=False), gpu(1)
    assert lists_of([sick, well], shared_dev_num=1, monitoring=Monitoring.ONE)["gpu.intel.com/monitoring"][0].healthy
    assert not lists_of([sick], shared_dev_num=1, monitoring=Monitoring.ONE)["gpu.intel.com/monitoring"][0].healthy


def test_every_monitoring_resource_that_there_can_be_is_known_in_advance() -> None:
    gpus = [gpu(0), gpu(1, "xe")]
    for monitoring in Monitoring:
        assert set(monitored(gpus, DEFAULT, monitoring)) == set(monitoring_resources(DEFAULT, monitoring))


@given(st.integers(0, 999), st.integers(0, 10**6), st.booleans(), st.none() | st.integers(0, 1023))
def test_a_device_takes_no_more_bytes_in_the_list_than_estimated(
    card: int, slot: int, healthy: bool, numa_node: int | None
) -> None:
    device = Device(id=f"card{card}-{slot}", healthy=healthy, numa_node=numa_node)
    sent = api.Device(ID=device.id, health="Healthy" if healthy else "Unhealthy")
    if numa_node is not None:
        sent.topology.nodes.add(ID=numa_node)
    exact = api.ListAndWatchResponse(devices=[sent]).ByteSize()
    assert exact <= device.most_bytes <= exact + 6


# contract A1.24
class TestLength:
    def lists(self, devices: int, resource: str = I915) -> DeviceLists:
        return {resource: tuple(Device(id="card0-000000", healthy=True) for _ in range(devices))}

    def test_a_list_of_4_mib_is_accepted_and_a_longer_one_is_not(self) -> None:
        fitting = MOST_BYTES // Device(id="card0-000000", healthy=True).most_bytes
        check_lengths(self.lists(fitting), DEFAULT)
        with pytest.raises(ListTooLong, match=r"^gpu.intel.com/i915: .* devices in \d+ bytes; lower --shared-dev-num$"):
            check_lengths(self.lists(fitting + 1), DEFAULT)

    @pytest.mark.parametrize("names", ["intel,aliyun", "aliyun,intel"])
    def test_the_sentence_says_what_to_set(self, names: str) -> None:
        vocabularies = Vocabularies(parse_vocabularies(names))
        with pytest.raises(ListTooLong, match=r"set --aliyun-unit=GiB for plugin and extender$"):
            check_lengths(self.lists(MOST_BYTES // 16, "aliyun.com/gpu-mem"), vocabularies)

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.plugin.devices.device_ids import known_ids
from gas.plugin.devices.device_lists import (
    Device,
    Monitoring,
    device_lists,
    list_bytes,
    monitored,
    monitoring_resources,
    too_long,
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
) -> dict[str, tuple[Device, ...]]:
    options = DeviceOptions(shared_dev_num=shared_dev_num)
    return device_lists(gpus, DEFAULT, options, monitoring, topology_hints=topology_hints)


# contract D1.3, P2.3
def test_each_card_has_as_many_ids_as_containers_may_share_it() -> None:
    lists = lists_of([gpu(10), gpu(2)], shared_dev_num=2, monitoring=Monitoring.NONE)
    assert {resource: [device.id for device in devices] for resource, devices in lists.items()} == {
        I915: ["card2-0", "card2-1", "card10-0", "card10-1"]
    }


def test_the_ids_that_kubelet_names_later_are_known_by_then() -> None:
    (device,) = lists_of([gpu(0)], shared_dev_num=1, monitoring=Monitoring.NONE)[I915]
    assert known_ids([str(device.id)])[0] is device.id


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


@given(st.integers(0, 999), st.integers(1, 2000), st.booleans(), st.none() | st.integers(0, 1023))
def test_devices_take_no_more_bytes_in_the_list_than_estimated(
    card: int, ids: int, healthy: bool, numa_node: int | None
) -> None:
    one = replace(gpu(card), healthy=healthy, numa_node=numa_node)
    options = DeviceOptions(shared_dev_num=ids)
    response = api.ListAndWatchResponse()
    for device in device_lists([one], DEFAULT, options, Monitoring.NONE, topology_hints=True)[I915]:
        sent = response.devices.add(ID=device.id, health="Healthy" if healthy else "Unhealthy")
        if numa_node is not None:
            sent.topology.nodes.add(ID=numa_node)
    exact, estimated = response.ByteSize(), list_bytes(one, ids, has_hint=numa_node is not None)
    assert exact <= estimated <= exact + (0 if numa_node is None else 6 * ids)


# contract A1.24
@pytest.mark.parametrize(
    ("vocabularies", "resource", "to_do"),
    [
        ("intel", I915, "lower --shared-dev-num"),
        ("intel,aliyun", "aliyun.com/gpu-mem", "set --aliyun-unit=GiB for plugin and extender"),
        ("aliyun,intel", "aliyun.com/gpu-mem", "set --aliyun-unit=GiB for plugin and extender"),
    ],
)
def test_a_list_that_kubelet_would_refuse_is_left_out_with_what_to_set(
    vocabularies: str, resource: str, to_do: str
) -> None:
    gpus = [replace(gpu(number), memory=80 << 30) for number in range(3)]
    options = DeviceOptions(shared_dev_num=1 if "aliyun" in vocabularies else 80_000)
    spoken = Vocabularies(parse_vocabularies(vocabularies))
    found = too_long(gpus, spoken, options)
    assert list(found) == [resource]
    assert found[resource].endswith(f" bytes; {to_do}")
    assert resource not in device_lists(gpus, spoken, options, Monitoring.NONE, without=found)


# contract A1.24
def test_the_memory_of_two_cards_of_80_gib_fits_in_mib() -> None:
    gpus = [replace(gpu(number), memory=80 << 30) for number in range(2)]
    assert not too_long(gpus, Vocabularies(parse_vocabularies("aliyun,vendor")), DeviceOptions())

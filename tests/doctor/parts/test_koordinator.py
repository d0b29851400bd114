"""The check of who writes the resources of Koordinator's words."""

from __future__ import annotations

import msgspec
import pytest

from configurator.scheduler_configuration import SchedulerConfiguration
from gas.objects.stored import DetailedNode
from tests.doctor.snapshots import (
    NOT_SEEN,
    entry,
    extender_pod,
    findings,
    plugin_pod,
    program_pod,
    scheduler,
    seen_node_json,
    worst,
)

KOORDINATOR = "--vocabularies=intel,koordinator"


@pytest.mark.parametrize(
    ("manager", "resource", "is_reported"),
    [
        ("koordinator-manager", "koordinator.sh/gpu-core", True),
        ("koord-manager", "koordinator.sh/gpu-memory", True),
        ("koord-manager", "koordinator.sh/batch-cpu", False),
        ("gas-plugin", "koordinator.sh/gpu-core", False),
        ("kubelet", "koordinator.sh/gpu-core", False),
    ],
)
def test_another_writer_of_the_same_resources_is_a_problem(manager: str, resource: str, *, is_reported: bool) -> None:
    seen = seen_node_json()
    written = {"manager": manager, "fieldsV1": {"f:status": {"f:allocatable": {f"f:{resource}": {}}}}}
    seen["metadata"]["managedFields"] = [written]
    node = msgspec.convert(seen, DetailedNode)
    pods = (extender_pod(KOORDINATOR), plugin_pod(KOORDINATOR))
    found = worst(findings("vocabularies", pods=pods, nodes=(node,), webhooks=NOT_SEEN))
    assert [each.level.value for each in found] == (["problem"] if is_reported else [])
    if is_reported:
        assert (found[0].where, found[0].found) == ("node gpu-1", f"field manager {manager}")
        assert resource in found[0].message
    assert findings("vocabularies", pods=(extender_pod(), plugin_pod()), nodes=(node,)) == []


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (["-feature-gates=AllAlpha=false,Accelerators=true", "--runtime-hooks=GPUEnvInject=true"], 2),
        (["-feature-gates=Accelerators=false,Other=true"], 0),
        ([], 0),
    ],
)
def test_a_koordlet_that_still_cares_for_gpus_is_a_warning(args: list[str], found: int) -> None:
    koordlet = program_pod("koordlet-abcde", "ghcr.io/koordinator-sh/koordlet:v1.6", "/koordlet", *args)
    pods = (extender_pod(KOORDINATOR), plugin_pod(KOORDINATOR), koordlet)
    warnings = [each for each in findings("vocabularies", pods=pods, webhooks=NOT_SEEN) if "koordlet" in each.message]
    assert [each.level.value for each in warnings] == ["warning"] * found
    assert findings("vocabularies", pods=(extender_pod(), plugin_pod(), koordlet)) == []


@pytest.mark.parametrize(
    ("plugins", "is_reported"),
    [
        (None, False),
        ({"filter": {"enabled": [{"name": "Reservation"}], "disabled": [{"name": "DeviceShare"}]}}, False),
        ({"filter": None, "reserve": {"enabled": [{"name": "Reservation"}, {"name": "DeviceShare"}]}}, True),
    ],
)
def test_a_scheduler_that_still_decides_cards_by_device_share_is_a_problem(
    plugins: dict[str, object] | None, *, is_reported: bool
) -> None:
    profiles = [{"schedulerName": "koord-scheduler", "plugins": plugins}]
    seen = msgspec.convert({"extenders": [entry()], "profiles": profiles}, SchedulerConfiguration)
    pods = (extender_pod(KOORDINATOR), plugin_pod(KOORDINATOR))
    found = findings("vocabularies", pods=pods, webhooks=NOT_SEEN, schedulers=(scheduler(seen),))
    messages = [each.message for each in worst(found)]
    assert messages == ["Koordinator's plugin DeviceShare decides cards as well as gas-extender"] * is_reported

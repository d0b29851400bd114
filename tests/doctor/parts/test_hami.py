"""The check of what is left of HAMi, and of the scheduler's configuration for its words."""

from __future__ import annotations

import msgspec
import pytest

from configurator.scheduler_configuration import SchedulerConfiguration
from gas.objects.stored import DetailedNode
from tests.doctor.snapshots import (
    entry,
    extender_pod,
    findings,
    plugin_pod,
    program_pod,
    scheduler,
    seen_node_json,
    worst,
)

HAMI = "--vocabularies=intel,hami"


def test_what_is_left_of_hami_is_reported() -> None:
    seen = seen_node_json()
    seen["metadata"]["annotations"] = {"hami.io/mutex.lock": "2026-01-01T00:00:00Z,default,pod"}
    other = program_pod(
        "hami-scheduler-1", "docker.io/projecthami/hami:v2.10.0", "scheduler", "--http_bind=0.0.0.0:443"
    )
    monitor = program_pod("monitor", "projecthami/hami:v2.10.0", "vGPUmonitor")
    pods, nodes = (extender_pod(HAMI), plugin_pod(HAMI), other, monitor), (msgspec.convert(seen, DetailedNode),)
    found = [each for each in findings("vocabularies", pods=pods, nodes=nodes) if "HAMi's" in each.message]
    assert [(each.level.value, each.where) for each in found] == [
        ("problem", "pod default/hami-scheduler-1"),
        ("warning", "node gpu-1"),
    ]
    assert not worst(findings("vocabularies", pods=(extender_pod(), plugin_pod(), other), nodes=nodes))


# contract H4.3
@pytest.mark.parametrize(("ignored", "is_reported"), [(True, False), (False, True)])
def test_a_scheduler_that_looks_for_what_no_node_offers_is_a_problem(*, ignored: bool, is_reported: bool) -> None:
    names = ("gpu", "gpumem", "gpumem-percentage", "gpucores", "priority")
    managed = [{"name": f"nvidia.com/{name}", "ignoredByScheduler": ignored and name != "gpu"} for name in names]
    extender = entry(managedResources=[*entry()["managedResources"], *managed])
    seen = msgspec.convert({"extenders": [extender]}, SchedulerConfiguration)
    found = findings(
        "scheduler-configuration", pods=(extender_pod(HAMI), plugin_pod(HAMI)), schedulers=(scheduler(seen),)
    )
    about = [each.expected for each in found if "which no node offers" in each.message]
    assert about == [f"ignoredByScheduler: true for nvidia.com/{name}" for name in names[1:]] * is_reported

"""The check of DeviceClasses that stand for our resources, and of cards that a DRA driver gives away as well."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gas.inspection.objects import ResourceSlice
from gas.objects.stored import DeviceClass, HostPodStatus
from gas.values.card_records import ANNOTATION, CardRecord, format_card_records
from gas.values.cards import Card
from tests.doctor.snapshots import (
    CASE,
    NOT_SEEN,
    assert_case,
    case,
    configuration,
    entry,
    extender_pod,
    findings,
    fine,
    gpu_pod,
    plugin_pod,
    scheduler,
    seen_node,
)

I915 = "gpu.intel.com/i915"
CARD = CardRecord(card=Card(0), driver="i915", pci_address="0000:4d:00.0", uuid="GPU-8f3a0001")
RECORDED = (seen_node(annotations={ANNOTATION: format_card_records([CARD])}),)
BOTH = "gas-plugin and the DRA driver gpu.x.com both give card0 away"


def classes(*resources: str) -> tuple[DeviceClass, ...]:
    return tuple(
        msgspec.convert({"metadata": {"name": f"c{at}"}, "spec": {"extendedResourceName": each}}, DeviceClass)
        for at, each in enumerate(resources)
    )


def slices(node: str = "gpu-1", **attributes: str) -> tuple[ResourceSlice, ...]:
    published: dict[str, Any] = {name: {"string": text} for name, text in attributes.items()} | {"cores": {"int": 3}}
    device = {"name": "gpu-0", "attributes": published}
    return (msgspec.convert({"spec": {"driver": "gpu.x.com", "nodeName": node, "devices": [device]}}, ResourceSlice),)


def with_telemetry(*, ignored: bool) -> Any:
    managed = [{"name": "telemetry/scheduling", "ignoredByScheduler": ignored}]
    return (scheduler(configuration(entry(), {"urlPrefix": "https://tas", "managedResources": managed})),)


@pytest.mark.parametrize(
    CASE,
    [
        case(
            "a class for parts",
            "problem",
            "counts parts of cards",
            pods=(extender_pod("--vocabularies=intel,aliyun"),),
            device_classes=classes("aliyun.com/gpu-mem"),
        ),
        case(
            "an ignored resource",
            "warning",
            "ask for telemetry/scheduling as well as gpu.intel.com/i915 fit nowhere",
            device_classes=classes(I915),
            schedulers=with_telemetry(ignored=True),
        ),
        case("the same PCI address", "problem", BOTH, nodes=RECORDED, resource_slices=slices(pciBusID="0000:4D:00.0")),
        case("the same UUID", "problem", BOTH, nodes=RECORDED, resource_slices=slices(uuid="GPU-8f3a0001")),
        case("classes not seen", "unknown", NOT_SEEN.why, device_classes=NOT_SEEN),
        case("slices not seen", "unknown", NOT_SEEN.why, resource_slices=NOT_SEEN),
        fine("a class for cards", "stands for gpu.intel.com/i915: pods that ask only", device_classes=classes(I915)),
        fine(
            "a class for whole cards of a vendor",
            "stands for nvidia.com/gpu",
            pods=(extender_pod("--vocabularies=intel,vendor"),),
            device_classes=classes("nvidia.com/gpu"),
        ),
        fine(
            "an ignored resource with a class",
            "",
            device_classes=classes(I915, "telemetry/scheduling"),
            schedulers=with_telemetry(ignored=True),
        ),
        fine("a resource that counts", "", device_classes=classes(I915), schedulers=with_telemetry(ignored=False)),
        fine(
            "another node",
            "",
            nodes=RECORDED,
            resource_slices=slices("gpu-2", pciBusID="0000:4d:00.0"),
            device_classes=classes(I915),
        ),
        fine(
            "another card",
            "",
            nodes=RECORDED,
            resource_slices=slices(pciBusID="0000:4e:00.0"),
            device_classes=classes(I915),
        ),
    ],
)
def test_dra_drivers(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("dra-drivers", changes, level, words)


def test_a_bound_pod_that_dra_serves_is_not_at_fault() -> None:
    claim = {"resourceClaimName": "x", "requestMappings": [{"containerName": "main", "resourceName": I915}]}
    status = msgspec.convert({"phase": "Running", "extendedResourceClaimStatus": claim}, HostPodStatus)
    (found,) = findings("pods", pods=(plugin_pod(), msgspec.structs.replace(gpu_pod(), status=status)))
    assert found.level.value == "ok"


def test_without_a_class_and_without_a_driver_there_is_nothing_to_say() -> None:
    assert findings("dra-drivers", device_classes=classes("example.com/gpu")) == []

"""The check of who writes the resources of Koordinator's words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gas.objects.stored import ManagedFields
from tests.doctor.snapshots import NOT_SEEN, extender_pod, findings, plugin_pod, seen_node, worst

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
    written: dict[str, Any] = {"f:status": {"f:allocatable": {f"f:{resource}": {}}}}
    seen = seen_node()
    fields = (ManagedFields(manager=manager, operation="Update", fields=written),)
    node = msgspec.structs.replace(seen, metadata=msgspec.structs.replace(seen.metadata, managed_fields=fields))
    pods = (extender_pod(KOORDINATOR), plugin_pod(KOORDINATOR))
    found = worst(findings("vocabularies", pods=pods, nodes=(node,), webhooks=NOT_SEEN))
    assert [each.level.value for each in found] == (["problem"] if is_reported else [])
    if is_reported:
        assert (found[0].where, found[0].found) == ("node gpu-1", f"field manager {manager}")
        assert resource in found[0].message
    assert findings("vocabularies", pods=(extender_pod(), plugin_pod()), nodes=(node,)) == []

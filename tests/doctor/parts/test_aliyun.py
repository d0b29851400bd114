from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gas.objects.stored import DetailedNode
from tests.doctor.snapshots import (
    configuration,
    entry,
    extender_pod,
    findings,
    plugin_pod,
    program_pod,
    scheduler,
    worst,
)
from tests.other_words import aliyun_node

ALIYUN = "--vocabularies=intel,aliyun"
REGISTRY = "registry.example/acs"
OLD_PLUGIN = program_pod("gpushare-1", f"{REGISTRY}/k8s-gpushare-plugin:v2", "gpushare-device-plugin-v2", "--v=5")
OLD_EXTENDER = program_pod("gpushare-2", f"{REGISTRY}/k8s-gpushare-schd-extender:1.11")
OLD_ENTRY = {
    "urlPrefix": "http://127.0.0.1:32766/gpushare-scheduler",
    "managedResources": [{"name": "aliyun.com/gpu-mem"}],
}
LABELLED = msgspec.convert({"metadata": {"name": "gpu-1", "labels": {"gpushare": "true"}}}, DetailedNode)
IN_GIB = msgspec.convert(aliyun_node("gpu-1", cards=2, units=15), DetailedNode)


# contract A1.25, A1.27
@pytest.mark.parametrize(
    ("others", "changes", "found"),
    [
        ([], {}, []),
        ([OLD_PLUGIN], {}, ["Aliyun's device plugin still runs; gas-plugin offers no aliyun.com/gpu-mem there"]),
        ([OLD_EXTENDER], {}, ["Aliyun's extender still runs; nothing should call it"]),
        (
            [],
            {"schedulers": (scheduler(configuration(entry(), OLD_ENTRY)),)},
            ["kube-scheduler calls Aliyun's extender, which does not know what gas-extender decides"],
        ),
        (
            [],
            {"nodes": (LABELLED,)},
            ["these nodes have Aliyun's label gpushare=true; if no nodeSelector of gas-plugin has it, remove it"],
        ),
        (
            [],
            {"nodes": (IN_GIB,)},
            [
                "allocatable aliyun.com/gpu-mem: expected 1 GiB or more on a card, found 15 MiB; if the device plugin"
                " counts in GiB, set --aliyun-unit=GiB"
            ],
        ),
    ],
    ids=["nothing", "plugin", "extender", "entry", "label", "unit"],
)
def test_what_is_left_of_aliyuns_system_is_reported(
    others: list[Any], changes: dict[str, Any], found: list[str]
) -> None:
    pods = (extender_pod(ALIYUN), plugin_pod(ALIYUN), *others)
    assert [each.message for each in worst(findings("vocabularies", pods=pods, **changes))] == found
    assert not worst(findings("vocabularies", pods=(extender_pod(), plugin_pod(), *others), **changes))

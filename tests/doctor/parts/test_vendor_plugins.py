"""The check of vendors' own plugins on cards that gas-plugin hands out or pods share."""

from __future__ import annotations

import pytest

from gas.doctor.findings import Level
from gas.objects.stored import DetailedPod
from gas.values.card_records import ANNOTATION, CardRecord, format_card_records
from gas.values.cards import Card
from tests.doctor.snapshots import extender_pod, findings, plugin_pod, program_pod, seen_node, shared_node, worst

ALIYUN = "--vocabularies=intel,aliyun"


def nvidias_pod(*, node: str = "gpu-1") -> DetailedPod:
    return program_pod("nvidia-1", "nvcr.io/nvidia/k8s-device-plugin:v0.17.0", node=node)


def test_a_vendors_plugin_on_shared_cards_is_a_problem() -> None:
    pods = (extender_pod(f"{ALIYUN},vendor"), plugin_pod(f"{ALIYUN},vendor"))
    alone = seen_node(name="gpu-2", labels={}, resources={"nvidia.com/gpu": "2"})
    nodes = (shared_node(**{"nvidia.com/gpu": "2"}), alone)
    (fault,) = worst(findings("vocabularies", pods=pods, nodes=nodes))
    assert (fault.level.value, fault.where) == ("problem", "node gpu-1")
    assert fault.found == "nvidia.com/gpu and shares on card0, card1"
    assert findings("vocabularies", pods=pods, nodes=nodes, only_node="gpu-2")[0].level.value == "ok"


@pytest.mark.parametrize(
    ("flag", "others", "found"),
    [
        pytest.param("--vocabularies=intel,vendor", [], None, id="ours-alone"),
        pytest.param("--vocabularies=intel,hami", [], None, id="ours-with-hami"),
        pytest.param("--vocabularies=intel,vendor", [nvidias_pod(node="gpu-2")], None, id="elsewhere"),
        pytest.param("--vocabularies=intel,vendor", [nvidias_pod()], "pod default/nvidia-1", id="by-image"),
        pytest.param(
            "--vocabularies=intel,vendor",
            [program_pod("nvidia-1", "mine/x:1", "nvidia-device-plugin")],
            "pod default/nvidia-1",
            id="by-command",
        ),
        pytest.param(
            ALIYUN,
            [],
            "2 nvidia.com/gpu, which gas-plugin does not offer without vendor among --vocabularies",
            id="by-its-resource",
        ),
    ],
)
def test_a_node_whose_nvidia_cards_two_plugins_hand_out_is_refused(
    flag: str, others: list[DetailedPod], found: str | None
) -> None:
    records = format_card_records([CardRecord(card=Card(number), driver="nvidia") for number in range(2)])
    node = seen_node(labels={}, annotations={ANNOTATION: records}, resources={"nvidia.com/gpu": "2"})
    pods = (extender_pod(flag), plugin_pod(flag, "--card-sources=nvml"), *others)
    faults = worst(findings("vocabularies", pods=pods, nodes=(node,)))
    assert [(each.level, each.found) for each in faults] == ([] if found is None else [(Level.PROBLEM, found)])
    for each in faults:
        assert each.message.startswith("NVIDIA's own plugin hands out card0, card1 as well as gas-plugin")
        assert each.where == "node gpu-1"

"""The check of vocabularies, and the others in a cluster with more than the default one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gas.doctor.findings import Level, Unseen
from gas.doctor.objects import RegisteredWebhook
from gas.doctor.parts.admission import Webhook
from gas.objects.stored import DetailedNode, DetailedPod, ManagedFields
from gas.values.card_records import ANNOTATION, CardRecord, format_card_records
from gas.values.cards import Card
from tests.deploy.manifests import WEBHOOKS
from tests.doctor.snapshots import findings, gpu_pod, plugin_pod, program_pod, seen_node, seen_pod, worst

ALIYUN = "--vocabularies=intel,aliyun"
KOORDINATOR = "--vocabularies=intel,koordinator"
COMPLETING = Webhook(
    kind="mutatingwebhookconfiguration",
    configuration="gas-admission",
    registered=msgspec.convert(WEBHOOKS["complete.pods.gas"], RegisteredWebhook),
)


def extender_pod(*flags: str) -> DetailedPod:
    return program_pod("gas-extender-1", "localhost/gas:1", "gas-extender", *flags, node="control-1")


def nvidias_pod(*, node: str = "gpu-1") -> DetailedPod:
    return program_pod("nvidia-1", "nvcr.io/nvidia/k8s-device-plugin:v0.17.0", node=node)


def shared_node(**resources: str) -> DetailedNode:
    """Return a node whose two cards are offered as memory, too."""
    usual = {"i915": "20", "millicores": "2000", "memory.max": "2097152000"}
    return seen_node(resources=usual | {"aliyun.com/gpu-mem": "2000", "aliyun.com/gpu-count": "2"} | resources)


class TestVocabularies:
    """The check ``vocabularies``, and the others in a cluster with more than the default vocabulary."""

    def test_the_default_vocabulary_needs_no_finding(self) -> None:
        assert findings("vocabularies") == []

    def test_the_same_flags_everywhere_are_ok(self) -> None:
        pods = (extender_pod(ALIYUN), plugin_pod("--vocabularies", "aliyun,intel"))
        (found,) = findings("vocabularies", pods=pods, nodes=(shared_node(),))
        assert (found.level.value, found.message) == ("ok", "all speak intel, aliyun")

    @pytest.mark.parametrize(
        ("extender", "plugin", "expected", "found"),
        [
            ([ALIYUN], [], "intel,aliyun", "intel"),
            ([], [ALIYUN], "intel", "intel,aliyun"),
            ([ALIYUN], [ALIYUN, "--aliyun-unit=GiB"], "MiB", "GiB"),
        ],
    )
    def test_a_plugin_with_other_flags_is_a_problem(
        self, extender: list[str], plugin: list[str], expected: str, found: str
    ) -> None:
        pods = (extender_pod(*extender), plugin_pod(*plugin), plugin_pod(*plugin, node="gpu-2", name="another"))
        (fault,) = worst(findings("vocabularies", pods=pods))
        assert (fault.level.value, fault.expected, fault.found) == ("problem", expected, found)

    def test_a_vendors_plugin_on_shared_cards_is_a_problem(self) -> None:
        pods = (extender_pod(f"{ALIYUN},vendor"), plugin_pod(f"{ALIYUN},vendor"))
        alone = seen_node(name="gpu-2", labels={}, resources={"nvidia.com/gpu": "2"})
        nodes = (shared_node(**{"nvidia.com/gpu": "2"}), alone)
        (fault,) = worst(findings("vocabularies", pods=pods, nodes=nodes))
        assert (fault.level.value, fault.where) == ("problem", "node gpu-1")
        assert fault.found == "nvidia.com/gpu and shares on card0, card1"
        assert findings("vocabularies", pods=pods, nodes=nodes, only_node="gpu-2")[0].level.value == "ok"

    @pytest.mark.parametrize(
        ("webhooks", "levels"),
        [((), ["warning"]), ((COMPLETING,), ["ok"]), (Unseen("forbidden", ""), ["ok"])],
        ids=["none", "registered", "unknown"],
    )
    @pytest.mark.parametrize("words", [KOORDINATOR, "--vocabularies=intel,kubeshare"])
    def test_pods_that_no_webhook_completes_are_a_warning(
        self, words: str, webhooks: tuple[Webhook, ...] | Unseen, levels: list[str]
    ) -> None:
        pods = (extender_pod(words), plugin_pod(words))
        found = findings("vocabularies", pods=pods, webhooks=webhooks)
        assert [each.level.value for each in found] == levels
        if levels == ["warning"]:
            assert found[0].expected == "the webhook complete.pods.gas"

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
    def test_another_writer_of_the_same_resources_is_a_problem(
        self, manager: str, resource: str, *, is_reported: bool
    ) -> None:
        written: dict[str, Any] = {"f:status": {"f:allocatable": {f"f:{resource}": {}}}}
        seen = seen_node()
        fields = (ManagedFields(manager=manager, operation="Update", fields=written),)
        node = msgspec.structs.replace(seen, metadata=msgspec.structs.replace(seen.metadata, managed_fields=fields))
        pods = (extender_pod(KOORDINATOR), plugin_pod(KOORDINATOR))
        found = findings("vocabularies", pods=pods, nodes=(node,), webhooks=(COMPLETING,))
        assert [each.level.value for each in found] == ["problem" if is_reported else "ok"]
        if is_reported:
            assert (found[0].where, found[0].found) == ("node gpu-1", f"field manager {manager}")
            assert resource in found[0].message
        assert findings("vocabularies", pods=(extender_pod(), plugin_pod()), nodes=(node,)) == []

    def test_a_resource_that_kube_scheduler_does_not_manage_is_a_problem(self) -> None:
        found = findings("scheduler-configuration", pods=(extender_pod(ALIYUN),), nodes=(shared_node(),))
        (fault,) = [each for each in worst(found) if "aliyun.com/gpu-mem" in each.message]
        assert fault.level.value == "problem"
        assert fault.expected == "aliyun.com/gpu-mem among managedResources"

    def test_pods_of_the_other_vocabulary_are_booked(self) -> None:
        asked = {"name": "main", "resources": {"requests": {"aliyun.com/gpu-mem": "900"}}}
        pods = [
            seen_pod(asked, name=name, node="gpu-1", annotations={"ALIYUN_COM_GPU_MEM_IDX": "0"}) for name in ("a", "b")
        ]
        found = findings("pods", pods=(extender_pod(ALIYUN), *pods), nodes=(shared_node(),))
        (fault,) = worst(found)
        assert (fault.where, fault.message) == ("card0 of node gpu-1", "pods hold more than the card has")
        assert worst(findings("pods", pods=(extender_pod(), *pods), nodes=(shared_node(),))) == []

    @pytest.mark.parametrize(
        ("flag", "others", "found"),
        [
            pytest.param("--vocabularies=intel,vendor", [], None, id="ours-alone"),
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
        self, flag: str, others: list[DetailedPod], found: str | None
    ) -> None:
        records = format_card_records([CardRecord(card=Card(number), driver="nvidia") for number in range(2)])
        node = seen_node(labels={}, annotations={ANNOTATION: records}, resources={"nvidia.com/gpu": "2"})
        pods = (extender_pod(flag), plugin_pod(flag, "--card-sources=nvml"), *others)
        faults = worst(findings("vocabularies", pods=pods, nodes=(node,)))
        assert [(each.level, each.found) for each in faults] == ([] if found is None else [(Level.PROBLEM, found)])
        for each in faults:
            assert each.message.startswith("NVIDIA's own plugin hands out card0, card1 as well as gas-plugin")
            assert each.where == "node gpu-1"

    @pytest.mark.parametrize("flags", [["--vocabularies=klingon"], ["--vocabularies=aliyun", "--aliyun-unit=GB"]])
    def test_flags_that_the_extender_refuses_count_as_the_default(self, flags: list[str]) -> None:
        assert worst(findings("pods", pods=(extender_pod(*flags), gpu_pod(cards="card0")))) == []

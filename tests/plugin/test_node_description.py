"""The node's description, from which the extender reads the same cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.objects.stored import Node
from gas.plugin.node_writer import node_patch
from gas.values.card_facts import CardFacts, Scan
from gas.vocabularies.intel.inventory import read_node
from gas.vocabularies.known import DEFAULT
from gas.vocabularies.protocol import DeviceOptions, NodeDescription
from sandbox.api.patches import merge_patched
from tests.plugin.gpus import gpu

GPU = "gpu.intel.com/"
FOREIGN = {"gpu.intel.com/xe-links": "0.0-1.0", "telemetry.aware.scheduling.p/gas-disable-card0": "true", "zone": "a"}


def node(
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    resources: Mapping[str, str | int] | None = None,
    **status: Any,
) -> dict[str, Any]:
    return {
        "metadata": {"name": "n", "labels": dict(labels or {}), "annotations": dict(annotations or {})},
        "status": {"capacity": dict(resources or {}), "allocatable": dict(resources or {}), **status},
    }


def decoded(node: Mapping[str, Any]) -> Node:
    return msgspec.convert(node, Node)


def written(before: Mapping[str, Any], wanted: NodeDescription) -> dict[str, Any]:
    """Return the node after the patch."""
    patch = node_patch(decoded(before), wanted, DEFAULT)
    after: dict[str, Any] = merge_patched(before, patch or {})
    assert node_patch(decoded(after), wanted, DEFAULT) is None
    return after


NOTHING = NodeDescription()
WANTED = NodeDescription(
    labels={GPU + "gpu-numbers": "0.1"},
    annotations={"gas-card-capacity": "card0=tiles:1;card1=tiles:2"},
    resources={GPU + "tiles": 3, GPU + "memory.max": 8 * 2**30},
)
AS_WANTED = node(WANTED.labels, WANTED.annotations, {GPU + "tiles": "3", GPU + "memory.max": "8Gi"})


class TestPatch:
    def test_a_node_without_description_gets_all_of_it(self) -> None:
        amounts = {GPU + "tiles": "3", GPU + "memory.max": "8589934592"}
        assert node_patch(decoded({"metadata": {"name": "n"}}), WANTED, DEFAULT) == {
            "metadata": {"labels": WANTED.labels, "annotations": WANTED.annotations},
            "status": {"capacity": amounts, "allocatable": amounts},
        }

    def test_equal_amounts_in_any_form_are_not_patched(self) -> None:
        assert node_patch(decoded(AS_WANTED), WANTED, DEFAULT) is None

    @pytest.mark.parametrize("field", ["capacity", "allocatable"])
    @pytest.mark.parametrize(
        "found",
        [
            pytest.param({GPU + "memory.max": "8Gi"}, id="missing"),
            pytest.param({GPU + "memory.max": "8Gi", GPU + "tiles": "0"}, id="set-to-0-by-kubelet"),
            pytest.param({GPU + "memory.max": "8Gi", GPU + "tiles": "2.5"}, id="no-whole-number"),
        ],
    )
    def test_only_what_differs_is_patched(self, field: str, found: dict[str, str]) -> None:
        before = node(WANTED.labels, WANTED.annotations, {GPU + "tiles": "3", GPU + "memory.max": "8Gi"})
        before["status"][field] = found
        assert node_patch(decoded(before), WANTED, DEFAULT) == {"status": {field: {GPU + "tiles": "3"}}}

    def test_labels_and_annotations_that_differ(self) -> None:
        before = node(
            {GPU + "gpu-numbers": "0"}, {"gas-card-capacity": "card0=tiles:9"}, AS_WANTED["status"]["capacity"]
        )
        assert node_patch(decoded(before), WANTED, DEFAULT) == {
            "metadata": {"labels": WANTED.labels, "annotations": WANTED.annotations}
        }

    @pytest.mark.parametrize(
        "name",
        ["cards", "numa-gpu-map", "pci-groups", "gpu-numbers2", "numa-gpu-map3", "pci-groups10", "gpu-numbers123"],
    )
    def test_outdated_labels_are_removed(self, name: str) -> None:
        before = node({**WANTED.labels, GPU + name: "Z1"}, WANTED.annotations, AS_WANTED["status"]["capacity"])
        assert node_patch(decoded(before), WANTED, DEFAULT) == {"metadata": {"labels": {GPU + name: None}}}

    @pytest.mark.parametrize(
        "name",
        [
            GPU + "xe-links",
            GPU + "xe-links2",
            GPU + "cards2",
            GPU + "gpu-numbers1",
            GPU + "gpu-numbers02",
            GPU + "gpu-numbers-of-mine",
            GPU + "numa-gpu-map2x",
            "other.example/gpu-numbers",
            "gpu-numbers",
            "gpuXintel.com/cards",
        ],
    )
    def test_labels_of_others_stay(self, name: str) -> None:
        before = node({**WANTED.labels, name: "x"}, WANTED.annotations, AS_WANTED["status"]["capacity"])
        assert node_patch(decoded(before), WANTED, DEFAULT) is None
        assert node_patch(decoded(node({name: "x"})), NOTHING, DEFAULT) is None

    def test_resources_of_kubelet_and_others_stay(self) -> None:
        others = {GPU + "i915": "2", GPU + "xe": "0", GPU + "monitoring": "1", "cpu": "8", "tiles": "4"}
        assert node_patch(decoded(node(resources=others)), NOTHING, DEFAULT) is None

    def test_annotations_of_others_stay(self) -> None:
        others = {"gas-released": "1", "gas-card-capacity2": "x", "gas-card": "y"}
        assert node_patch(decoded(node(annotations=others)), NOTHING, DEFAULT) is None

    def test_the_whole_description_can_be_removed(self) -> None:
        before = node(
            {**FOREIGN, **WANTED.labels, GPU + "gpu-numbers2": "Z3"},
            {**WANTED.annotations, "note": "x"},
            {"cpu": "8", GPU + "i915": "2", GPU + "tiles": "3", GPU + "millicores": "2k"},
        )
        rest = node(FOREIGN, {"note": "x"}, {"cpu": "8", GPU + "i915": "2"})
        assert written(before, NOTHING) == rest


gpus = st.lists(st.integers(0, 300), unique=True, max_size=40).flatmap(
    lambda numbers: st.tuples(
        *(
            st.builds(
                gpu,
                st.just(number),
                driver=st.sampled_from(["i915", "xe"]),
                numa_node=st.sampled_from([None, 0, 1, 12]),
                tiles=st.integers(1, 8),
                memory=st.one_of(st.none(), st.sampled_from([16 * 2**30, 48 * 2**30]), st.integers(1, 2**50)),
                pci_path=st.sampled_from([(), ("pci0", "a"), ("pci0", "b"), ("pci1", "a")]),
                healthy=st.booleans(),
            )
            for number in sorted(numbers)
        )
    )
)
alike = st.lists(st.integers(0, 300), unique=True, max_size=40).map(
    lambda numbers: tuple(gpu(number, numa_node=number % 2) for number in sorted(numbers))
)


class TestTheExtenderReadsWhatWasWritten:
    @given(st.one_of(gpus, alike), st.integers(1, 16), st.integers(0, 3))
    def test_the_extender_reads_the_same_cards_with_the_same_amounts(
        self, gpus: tuple[CardFacts, ...], shared_dev_num: int, level: int
    ) -> None:
        scan = Scan(gpus=gpus)
        after = written(
            node(FOREIGN, resources=kubelets(scan, shared_dev_num)),
            DEFAULT.describe(scan.gpus, DeviceOptions(shared_dev_num=shared_dev_num, pci_grouping_level=level)),
        )
        after["metadata"]["labels"] = {
            name: value for name, value in after["metadata"]["labels"].items() if name not in FOREIGN
        }
        facts = read_node(decoded(after))
        assert facts.problems == ()
        assert {card: dict(amounts) for card, amounts in facts.inventory.capacity.items()} == {
            gpu.card: amounts(gpu, shared_dev_num) for gpu in gpus
        }
        assert facts.inventory.cards == tuple(gpu.card for gpu in gpus)
        assert facts.inventory.numa_groups == numa_groups(gpus)

    @given(gpus.filter(bool), st.integers(1, 3), st.data())
    def test_the_extender_reads_the_same_pci_groups(
        self, gpus: tuple[CardFacts, ...], level: int, data: st.DataObject
    ) -> None:
        one = data.draw(st.sampled_from(gpus))
        labels = DEFAULT.describe(gpus, DeviceOptions(shared_dev_num=1, pci_grouping_level=level)).labels
        disable = {f"telemetry.aware.scheduling.p/gas-disable-{one.card}": "PCI_GROUP"}
        facts = read_node(decoded(node({**labels, **disable})))
        assert facts.inventory.disabled == {
            gpu.card for gpu in gpus if gpu == one or (one.pci_path and gpu.pci_path[:level] == one.pci_path[:level])
        }

    @given(gpus, gpus, st.integers(0, 2))
    def test_nothing_is_left_of_an_earlier_description(
        self, before: tuple[CardFacts, ...], after: tuple[CardFacts, ...], level: int
    ) -> None:
        def describe(gpus: tuple[CardFacts, ...]) -> NodeDescription:
            return DEFAULT.describe(gpus, DeviceOptions(shared_dev_num=2, pci_grouping_level=level))

        fresh = written(node(FOREIGN), describe(after))
        assert written(written(node(FOREIGN), describe(before)), describe(after)) == fresh
        assert written(fresh, NOTHING) == node(FOREIGN)


def kubelets(scan: Scan, shared_dev_num: int) -> dict[str, str]:
    """Return the allocatable count resources as kubelet has them from the plugin's device lists."""
    counts = {name: sum(gpu.healthy for gpu in scan.gpus if gpu.driver == name) for name in ("i915", "xe")}
    return {GPU + name: str(count * shared_dev_num) for name, count in counts.items()}


def amounts(gpu: CardFacts, shared_dev_num: int) -> dict[str, int]:
    if not gpu.healthy:
        return {}
    memory = {"memory.max": gpu.memory} if gpu.memory else {}
    return {gpu.driver: shared_dev_num, "millicores": 1000, "tiles": gpu.tiles, **memory}


def numa_groups(gpus: tuple[CardFacts, ...]) -> tuple[tuple[int, ...], ...] | None:
    nodes = sorted({gpu.numa_node for gpu in gpus if gpu.numa_node is not None})
    return tuple(tuple(gpu.card for gpu in gpus if gpu.numa_node == node) for node in nodes) or None


def test_a_node_without_cards_has_no_description() -> None:
    assert DEFAULT.describe((), DeviceOptions(shared_dev_num=1, pci_grouping_level=2)) == NOTHING

"""Fake cards for a node from a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gas.vocabularies.known import DEFAULT
from gas.vocabularies.protocol import DeviceOptions
from sandbox.__main__ import EXAMPLES
from sandbox.demo.manifests import read_manifests
from sandbox.hardware.described_node import AmbiguousDriver, bare_node, hardware_of, missing_fields
from sandbox.hardware.fake_sysfs import write_tree
from tests.plugin.gpus import read_gpus

NODES = {node.typed.name: node.written for node in read_manifests(EXAMPLES / "nodes" / "cluster.yaml").nodes}


def described(labels: Mapping[str, str], **amounts: str) -> dict[str, Any]:
    allocatable = {f"gpu.intel.com/{name}": amount for name, amount in amounts.items()}
    return {
        "metadata": {"name": "n", "labels": {f"gpu.intel.com/{name}": text for name, text in labels.items()}},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }


@pytest.mark.parametrize("name", NODES)
def test_what_the_plugin_reads_from_the_cards_is_what_the_example_says(name: str, tmp_path: Any) -> None:
    node = NODES[name]
    hardware = hardware_of(node)
    write_tree(tmp_path, hardware.gpus)
    scan = read_gpus(tmp_path, memory_override=hardware.memory_override)
    written = DEFAULT.describe(scan.gpus, DeviceOptions(shared_dev_num=hardware.shared_dev_num, pci_grouping_level=0))
    counted = {f"gpu.intel.com/{gpu.driver}" for gpu in scan.gpus}
    amounts = {**written.resources, **dict.fromkeys(counted, hardware.shared_dev_num * len(scan.gpus))}
    bare = bare_node(node)
    assert not {*written.labels, *amounts} & {*bare["metadata"]["labels"], *bare["status"]["allocatable"]}
    bare["metadata"]["labels"] |= written.labels
    bare["status"]["allocatable"] |= {name: str(amount) for name, amount in amounts.items()}
    assert missing_fields(node, bare) == []


def test_the_memory_of_xe_cards_is_overridden_because_sysfs_does_not_show_it() -> None:
    hardware = hardware_of(described({"gpu-numbers": "1.4"}, **{"xe": "4", "tiles": "4", "memory.max": "16G"}))
    assert hardware.memory_override == 8_000_000_000
    assert hardware.shared_dev_num == 2
    assert [(gpu.card, gpu.model.tiles, gpu.model.memory) for gpu in hardware.gpus] == [(1, 2, None), (4, 2, None)]


def test_the_memory_of_an_i915_card_is_split_over_its_tiles() -> None:
    hardware = hardware_of(described({"gpu-numbers": "0"}, **{"i915": "1", "tiles": "2", "memory.max": "16G"}))
    (gpu,) = hardware.gpus
    assert (gpu.model.driver, gpu.model.tiles, gpu.model.memory) == ("i915", 2, 8_000_000_000)


@pytest.mark.parametrize(
    ("amounts", "found"), [({"millicores": "1k"}, "neither"), ({"i915": "1", "xe": "1"}, "both")], ids=["none", "two"]
)
def test_a_card_needs_one_driver(amounts: dict[str, str], found: str) -> None:
    with pytest.raises(AmbiguousDriver, match=f"node n: expected the resource i915 or xe for card0, found {found}"):
        hardware_of(described({"gpu-numbers": "0"}, **amounts))


def test_missing_labels_and_resources_are_named() -> None:
    node = described({"gpu-numbers": "0", "xe-links": "0.0-1.0"}, i915="2000")
    found = {"metadata": {"labels": {"gpu.intel.com/xe-links": "0.0-1.0"}}}
    assert missing_fields(node, found) == ["gpu.intel.com/gpu-numbers", "gpu.intel.com/i915"]
    found["status"] = {"allocatable": {"gpu.intel.com/i915": "2k"}}
    assert missing_fields(node, found) == ["gpu.intel.com/gpu-numbers"]

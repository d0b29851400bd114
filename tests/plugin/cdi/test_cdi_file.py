"""The CDI file, and the names of cards in it that containers get."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import pytest

from gas.plugin.cdi.cdi_file import cdi_text, with_cdi_names
from gas.plugin.devices.allocation import Allocation, Presentation, card_allocation
from gas.values.card_facts import CardFacts
from tests.plugin.gpus import linked_gpu as gpu
from tests.plugin.gpus import nvidia_gpu

NVIDIA = [nvidia_gpu(n, cdi_name=f"nvidia.com/gpu=GPU-{n}") for n in (0, 1)]


def test_every_card_that_can_be_given_is_a_device_with_its_nodes_and_mounts() -> None:
    gpus = [gpu(1, "xe"), gpu(0, by_path=("pci-0-card",)), gpu(2, device_nodes=())]
    spec = json.loads(cdi_text(gpus, Presentation(host_root=PurePosixPath("/tree"))))
    assert spec["cdiVersion"] == "0.5.0"
    assert [device["name"] for device in spec["devices"]] == ["card0", "card1"]
    assert spec["devices"][0]["containerEdits"] == {
        "deviceNodes": [
            {"path": "/dev/dri/card0", "hostPath": "/tree/dev/dri/card0", "type": "c", "permissions": "rw"},
            {"path": "/dev/dri/renderD128", "hostPath": "/tree/dev/dri/renderD128", "type": "c", "permissions": "rw"},
        ],
        "mounts": [
            {
                "hostPath": "/tree/dev/dri/by-path/pci-0-card",
                "containerPath": "/dev/dri/by-path/pci-0-card",
                "options": ["rbind", "rprivate", "ro"],
            }
        ],
    }


def named(resource: str, gpus: list[CardFacts], *, as_annotation: bool = False) -> Allocation:
    allocation = card_allocation(gpus, Presentation())
    edited = with_cdi_names(allocation, resource, gpus, as_annotation=as_annotation)
    assert edited.device_nodes == allocation.device_nodes, "names come in addition"
    return edited


def test_the_names_of_allocations_are_those_of_the_file() -> None:
    gpus = [gpu(0), gpu(10)]
    spec = json.loads(cdi_text(gpus, Presentation()))
    assert named("r/i915", gpus).cdi == tuple(f"{spec['kind']}={device['name']}" for device in spec["devices"])


@pytest.mark.parametrize(
    ("gpus", "names"),
    [
        pytest.param([gpu(0), gpu(3)], "gpu.intel.com/card=card0,gpu.intel.com/card=card3", id="our-own-file"),
        pytest.param(NVIDIA, "nvidia.com/gpu=GPU-0,nvidia.com/gpu=GPU-1", id="that-of-nvidias-toolkit"),
        pytest.param([gpu(0, device_nodes=()), nvidia_gpu(0)], "", id="cards-without-nodes-are-in-no-file"),
    ],
)
def test_cards_are_named_in_the_field_or_in_an_annotation(gpus: list[CardFacts], names: str) -> None:
    fields = named("gpu.intel.com/i915", gpus)
    assert (",".join(fields.cdi), fields.annotations) == (names, {})
    annotated = named("gpu.intel.com/i915", gpus, as_annotation=True)
    expected = {"cdi.k8s.io/gas-plugin_i915": names} if names else {}
    assert (annotated.cdi, annotated.annotations) == ((), expected)

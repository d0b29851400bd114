"""The CDI file, and the names of cards in it that containers get."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest

from gas.plugin.cdi.cdi_file import CDI_FILE, cdi_text, with_cdi_names
from gas.plugin.devices.allocation import Allocation, Presentation, card_allocation
from gas.plugin.published_file import FileFault
from gas.values.card_facts import CardFacts
from tests.plugin.gpus import nvidia_gpu
from tests.plugin.linked_gpus import linked_gpu as gpu

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
    allocation = card_allocation(resource, gpus, Presentation())
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


def test_the_file_is_replaced_whole_and_its_directory_made(tmp_path: Path) -> None:
    path = tmp_path / "cdi" / "cards.json"
    for text in ("old", "new"):
        CDI_FILE.write(path, text)
    assert [each.name for each in path.parent.iterdir()] == ["cards.json"]
    assert path.read_text() == "new"
    for _ in range(2):
        CDI_FILE.remove(path)
    assert list(path.parent.iterdir()) == []


def test_a_full_disk_is_an_error_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "cards.json"
    CDI_FILE.write(path, "old")
    (tmp_path / ".cards.json.new").symlink_to("/dev/full")
    with pytest.raises(FileFault, match=r"cannot write the CDI file .*: No space left on device"):
        CDI_FILE.write(path, "new")
    assert path.read_text() == "old"


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cdi").write_text("a file")
    with pytest.raises(FileFault, match="must be a directory of the node"):
        CDI_FILE.write(tmp_path / "cdi" / "cards.json", "{}")

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest

from gas.plugin.cdi.cdi_file import UnwritableCdiFile, cdi_text, remove_cdi_file, write_cdi_file
from gas.plugin.devices.allocation import Cdi, Presentation, card_allocation
from tests.plugin.linked_gpus import linked_gpu as gpu


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


def test_the_cdi_names_of_allocations_are_those_of_the_file() -> None:
    gpus = [gpu(0), gpu(10)]
    spec = json.loads(cdi_text(gpus, Presentation()))
    names = tuple(f"{spec['kind']}={device['name']}" for device in spec["devices"])
    assert card_allocation("i915", gpus, Presentation(cdi=Cdi.NAMES)).cdi == names


def test_the_file_is_replaced_whole_and_its_directory_made(tmp_path: Path) -> None:
    path = tmp_path / "cdi" / "cards.json"
    write_cdi_file(path, "old")
    write_cdi_file(path, "new")
    assert [each.name for each in path.parent.iterdir()] == ["cards.json"]
    assert path.read_text() == "new"
    remove_cdi_file(path)
    remove_cdi_file(path)
    assert list(path.parent.iterdir()) == []


def test_a_full_disk_is_an_error_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "cards.json"
    write_cdi_file(path, "old")
    (tmp_path / ".cards.json.new").symlink_to("/dev/full")
    with pytest.raises(UnwritableCdiFile, match=r"cannot write the CDI file .*: No space left on device"):
        write_cdi_file(path, "new")
    assert path.read_text() == "old"


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cdi").write_text("a file")
    with pytest.raises(UnwritableCdiFile, match="must be a directory of the node"):
        write_cdi_file(tmp_path / "cdi" / "cards.json", "{}")

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from gas.plugin.discovery.local_memory import MEMORY_OF_MODELS
from gas.plugin.discovery.sysfs import fake_tree_warning
from sandbox.hardware.fake_sysfs import FLEX_170, MAX_1550, MAX_1550_XE, Model, add_gpu, fake_gpus, write_tree
from tests.fake_gpus import ARC_A770, ARC_B580, FLEX_140, MAX_1100, card_directory, remove_gpu, with_virtual_functions
from tests.plugin.gpus import read_gpus

MODELS = [ARC_A770, ARC_B580, FLEX_140, FLEX_170, MAX_1100, MAX_1550, MAX_1550_XE]


@pytest.mark.parametrize("count", [1, 2, 16])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.device_id}-{model.driver}")
def test_every_model_in_any_number_is_read_back(tmp_path: Path, model: Model, count: int) -> None:
    gpus = fake_gpus(model, count, numa_nodes=min(count, 2), per_board=2)
    write_tree(tmp_path, gpus)
    scan = read_gpus(tmp_path)
    memory = MEMORY_OF_MODELS.get(model.device_id) if model.memory is None else model.memory * model.tiles
    assert len(scan.problems) == (count if memory is None else 0)
    assert [
        (gpu.card, gpu.driver, gpu.device_id, gpu.tiles, gpu.memory, gpu.pci_path, gpu.numa_node) for gpu in scan.gpus
    ] == [
        (
            gpu.card,
            model.driver,
            model.device_id,
            model.tiles,
            memory,
            gpu.pci_path,
            gpu.numa_node,
        )
        for gpu in gpus
    ]
    assert all(len(gpu.device_nodes) == 2 and len(gpu.by_path) == 2 and len(gpu.mei) == 1 for gpu in scan.gpus)
    assert len({gpu.pci_address for gpu in scan.gpus}) == count


def test_numa_nodes_are_blocks_and_boards_share_three_directories() -> None:
    gpus = fake_gpus(FLEX_140, 8, numa_nodes=2, per_board=2)
    assert [gpu.numa_node for gpu in gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [len({gpu.pci_path[:level] for gpu in gpus}) for level in (1, 3, 4)] == [4, 4, 8]


def test_models_can_be_mixed(tmp_path: Path) -> None:
    write_tree(tmp_path, fake_gpus(FLEX_170, 3) + fake_gpus(MAX_1550_XE, 2, first=3))
    assert [gpu.driver for gpu in read_gpus(tmp_path).gpus] == ["i915"] * 3 + ["xe"] * 2


def test_virtual_functions_are_added_to_the_physical_function() -> None:
    (physical,) = fake_gpus(FLEX_170, 1)
    first, *virtual = with_virtual_functions(physical, 2, first=5)
    assert first == replace(physical, virtual_functions=2)
    assert [(gpu.card, gpu.pci_address) for gpu in virtual] == [(5, "0000:90:00.1"), (6, "0000:90:00.2")]


def test_a_card_can_be_removed_and_added_again(tmp_path: Path) -> None:
    gpus = fake_gpus(FLEX_170, 2)
    write_tree(tmp_path, gpus)
    before = read_gpus(tmp_path)
    remove_gpu(tmp_path, gpus[1])
    assert read_gpus(tmp_path).gpus == before.gpus[:1]
    add_gpu(tmp_path, gpus[1])
    assert read_gpus(tmp_path) == before


def test_every_link_stays_inside_the_tree(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    write_tree(root, fake_gpus(MAX_1550, 2))
    links = [path for path in root.rglob("*") if path.is_symlink()]
    assert len(links) == 2 * 6
    assert all(path.resolve(strict=True).is_relative_to(root.resolve()) for path in links)
    assert (card_directory(root, fake_gpus(MAX_1550, 1)[0]) / "device/vendor").read_text() == "0x8086\n"


def test_the_tree_is_marked_as_fake(tmp_path: Path) -> None:
    assert fake_tree_warning(tmp_path) is None
    write_tree(tmp_path, ())
    assert fake_tree_warning(tmp_path) == (
        f"THE GPUS OF THIS NODE ARE FAKE: {tmp_path} is a generated tree, for demonstrations and tests only"
    )


def test_device_nodes_can_be_character_devices(tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "probe", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root may make device nodes")
    write_tree(tmp_path, fake_gpus(FLEX_170, 1), character_devices=True)
    for name in ("dri/card0", "dri/renderD128", "mei0"):
        made = (tmp_path / "dev" / name).stat()
        assert stat.S_ISCHR(made.st_mode)
        assert stat.S_IMODE(made.st_mode) == 0o666

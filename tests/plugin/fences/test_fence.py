"""A fence file is checked strictly, and filled in with what a container may use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gas.plugin.devices.allocation import Allocation, Mount
from gas.plugin.fences.fence import LARGEST, PRESETS, Fence, MalformedFence, read_fence, with_fence
from gas.plugin.matching.gpu_pods import GpuPod, gpu_pod
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.selection import parse_vocabularies
from tests.builders import requesting
from tests.kubeshare_words import share
from tests.other_words import asking, sharing
from tests.plugin.gpus import gpu, nvidia_gpu
from tests.plugin.pods_for_plugin import node_pod

GIB = 2**30
ALL = Vocabularies(parse_vocabularies("aliyun,koordinator,kubeshare,vendor"))


def pod(*containers: Any, **fields: Any) -> GpuPod:
    found = gpu_pod(node_pod(*containers, **fields), ALL)
    assert found is not None
    return found


def vgpu(name: str) -> dict[str, Any]:
    return requesting({"kubeshare/vgpu": "1"}, name)


def written(directory: Path, fence: Any) -> str:
    file = directory / "fence.json"
    file.write_bytes(fence if isinstance(fence, bytes) else json.dumps(fence).encode())
    return str(file)


def filled(fence: Mapping[str, Any], of: GpuPod, *cards: int, container: int = 0, directory: Path) -> Allocation:
    read = read_fence(written(directory, dict(fence)))
    return with_fence({"": read}, of, container, [nvidia_gpu(card) for card in cards])


HALF = pod(sharing(shared=1, core=50, memory=40 * GIB))


@pytest.mark.parametrize(
    ("preset", "variables", "mounts"),
    [
        pytest.param(
            "mps",
            {
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",
                "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=20480M,1=20480M",
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
            },
            ["/tmp/nvidia-mps", "/dev/shm"],
            id="mps",
        ),
        pytest.param(
            "hami-core",
            {
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                "CUDA_DEVICE_MEMORY_LIMIT_0": "20480M",
                "CUDA_DEVICE_MEMORY_LIMIT_1": "20480M",
                "CUDA_DEVICE_SM_LIMIT": "25",
            },
            ["/usr/local/vgpu/libvgpu.so", "/etc/ld.so.preload", "/tmp/vgpulock"],
            id="hami-core",
        ),
    ],
)
def test_a_preset_states_the_share_of_each_card(preset: str, variables: dict[str, str], mounts: list[str]) -> None:
    two = pod(sharing(shared=2, core=50, memory=40 * GIB))
    given = with_fence({"": read_fence(preset)}, two, 0, [nvidia_gpu(1), nvidia_gpu(2)])
    assert given.env == variables
    assert [mount.container_path for mount in given.mounts] == mounts


def test_every_preset_is_tested() -> None:
    assert PRESETS == ("hami-core", "mps")


# contract O1.30
@pytest.mark.parametrize(
    ("label", "given"), [("HAMi-core", {"H": ""}), ("hami-core", {"A": ""}), ("other", {"A": ""}), (None, {"A": ""})]
)
def test_a_pod_in_koordinators_words_may_choose_its_fence(label: str | None, given: dict[str, str]) -> None:
    labels = {"koordinator.sh/gpu-isolation-provider": label} if label else {}
    of = pod(sharing(shared=1, core=50, memory=40 * GIB), labels=labels)
    fences = {"hami-core": Fence(variables={"H": ""}), "mps": Fence(variables={"M": ""})}
    assert with_fence(fences | {"": Fence(variables={"A": ""})}, of, 0, [nvidia_gpu(0)]).env == given
    assert with_fence(fences, of, 0, [nvidia_gpu(0)]).env == (given if "H" in given else {})


EVERYTHING = {
    "variables": {
        "BYTES": "{memory}",
        "LIMIT": "{memory_limit}",
        "PERCENT": "{compute_percent}",
        "EACH": "{uuid}:{memory}",
        "FIXED": "x",
    },
    "mounts": [{"hostPath": "/h/{uuid}", "containerPath": "/c/{index}", "readOnly": False}],
    "cdiDevices": ["example.com/fence={uuid}", "example.com/fence=all"],
}


@pytest.mark.parametrize(
    ("of", "container", "amounts"),
    [
        pytest.param(HALF, 0, (40 * GIB, "40960M", "50"), id="koordinator: memory and compute"),
        pytest.param(pod(asking(gpu_mem=20480)), 0, (20 * GIB, "20480M", "25"), id="aliyun: compute in proportion"),
        pytest.param(pod(sharing(shared=1, ratio=25)), 0, (20 * GIB, "20480M", None), id="no compute is requested"),
        pytest.param(
            pod(vgpu("a"), vgpu("b"), annotations=share("0.5", memory=str(GIB))),
            1,
            (GIB, "1024M", "50"),
            id="kubeshare: each container may use what its pod has",
        ),
        pytest.param(
            pod(asking("a", gpu_mem=1024), asking("b", gpu_mem=2048)), 1, (2 * GIB, "2048M", "2"), id="its own part"
        ),
        pytest.param(
            pod(vgpu("a"), annotations=share("0.001", memory="1000")), 0, (1000, "1M", "1"), id="never no limit"
        ),
    ],
)
def test_the_amounts_are_those_that_the_container_may_use(
    of: GpuPod, container: int, amounts: tuple[int, str, str | None], tmp_path: Path
) -> None:
    given = filled(EVERYTHING, of, 3, container=container, directory=tmp_path)
    uuid = nvidia_gpu(3).uuid
    memory, limit, percent = amounts
    expected = {"BYTES": str(memory), "LIMIT": limit, "EACH": f"{uuid}:{memory}", "FIXED": "x"}
    assert given.env == expected | ({"PERCENT": percent} if percent else {})
    assert given.mounts == (Mount(f"/h/{uuid}", "/c/0", read_only=False),)
    assert given.cdi == (f"example.com/fence={uuid}", "example.com/fence=all")


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(pod(asking(nvidia=1)), id="a whole card in a vendor's words"),
        pytest.param(pod(sharing(shared=1, core=100, ratio=100)), id="all compute and all memory"),
    ],
)
def test_a_whole_card_needs_no_fence(of: GpuPod, tmp_path: Path) -> None:
    assert filled(EVERYTHING, of, 0, directory=tmp_path) == Allocation()


@pytest.mark.parametrize("asked", [sharing(shared=1, core=100, memory=GIB), sharing(shared=1, core=10, ratio=100)])
def test_all_compute_or_all_memory_alone_needs_a_fence(asked: dict[str, Any], tmp_path: Path) -> None:
    """Other pods may still join the card."""
    assert filled(EVERYTHING, pod(asked), 0, directory=tmp_path).mounts


def test_cards_of_another_driver_get_none_of_it_and_are_not_counted(tmp_path: Path) -> None:
    fence = read_fence(written(tmp_path, {"driver": "nvidia", "variables": {"L": "{index}={memory}"}}))
    both = pod(sharing(shared=2, memory=2 * GIB))
    assert with_fence({"": fence}, both, 0, [gpu(0), nvidia_gpu(1000)]).env == {"L": f"0={GIB}"}
    assert with_fence({"": fence}, both, 0, [gpu(0)]) == Allocation()


def test_the_percentage_is_of_the_part_of_a_card_that_the_container_has(tmp_path: Path) -> None:
    fence = read_fence(written(tmp_path, {"variables": {"PERCENT": "{compute_percent}"}}))
    given = with_fence({"": fence}, pod(sharing(shared=1, core=25)), 0, [nvidia_gpu(0, millicores=500)])
    assert given.env == {"PERCENT": "50"}


def test_without_the_name_of_a_card_the_smallest_amount_counts(tmp_path: Path) -> None:
    cards = [nvidia_gpu(0, memory=80 * GIB), nvidia_gpu(1, memory=8 * GIB)]
    fence = read_fence(written(tmp_path, {"variables": {"SMALLEST": "{memory}"}}))
    half = pod(sharing(shared=2, ratio=100))
    assert with_fence({"": fence}, half, 0, cards).env == {"SMALLEST": str(4 * GIB)}


@pytest.mark.parametrize(
    ("fence", "sentence"),
    [
        pytest.param(b"{", "expected JSON with driver, variables, mounts and cdiDevices: ", id="not-json"),
        pytest.param(b"\xff", "expected JSON with driver, ", id="not-text"),
        pytest.param(b"[" * 50_000, "expected JSON with driver, ", id="deep"),
        pytest.param(b" " * (LARGEST + 1), f"expected at most {LARGEST} bytes, found more", id="long"),
        pytest.param({"variable": {}}, "Object contains unknown field `variable`", id="unknown-field"),
        pytest.param({"x" * 5000: 1}, f"Object contains unknown field `{'x' * 50}", id="long-unknown-field"),
        pytest.param({"variables": {"A": 1}}, "Expected `str`, got `int` - at `$.variables[...]`", id="not-a-text"),
        pytest.param({"driver": "nvida", "variables": {"A": ""}}, "driver: expected i915, xe, nvidia or", id="driver"),
        pytest.param({}, "expected variables, mounts or cdiDevices, found none of them", id="empty"),
        pytest.param({"variables": {f"A{n}": "" for n in range(65)}}, "expected at most 64 variables,", id="many"),
        pytest.param({"variables": {"1A": ""}}, "variable '1A': expected letters, digits and '_'", id="name"),
        pytest.param({"variables": {"A-B": ""}}, "variable 'A-B': expected letters, digits and '_'", id="hyphen"),
        pytest.param({"variables": {"A_{uuid}": ""}}, "variable 'A_{uuid}': expected no other placeholder", id="uuid"),
        pytest.param({"variables": {"A{index}": "", "A1": ""}}, "different names, found 'A1' twice once", id="names"),
        pytest.param({"variables": {"{index}": ""}}, "expected letters, digits and '_'", id="name-of-a-placeholder"),
        pytest.param({"variables": {"A": "{gpu}"}}, "found '{gpu}'", id="unknown-placeholder"),
        pytest.param({"variables": {"A_{memory}": ""}}, "than {index}, found '{memory}'", id="amount-in-name"),
        pytest.param({"variables": {"A": "{memory"}}, "expected '{' and '}' only in {compute_percent}", id="brace"),
        pytest.param({"variables": {"A": "a\nb"}}, "printable characters", id="control-character"),
        pytest.param({"variables": {"A": "a" * 5000}}, "expected at most 4096 printable", id="long-value"),
        pytest.param(
            {"variables": {"NVIDIA_VISIBLE_DEVICES": "all"}}, "itself chooses the container's cards", id="cards"
        ),
        pytest.param({"mounts": [{"hostPath": "/a", "containerPath": "b"}]}, "mount 'b': expected an abs", id="path"),
        pytest.param({"mounts": [{"hostPath": "/a/../b", "containerPath": "/b"}]}, "mount '/a/../b':", id="dots"),
        pytest.param({"mounts": [{"hostPath": "/", "containerPath": "/b"}]}, "path other than /", id="root"),
        pytest.param({"mounts": [{"hostPath": "/a"}]}, "missing required field `containerPath`", id="half-a-mount"),
        pytest.param({"mounts": [{"hostPath": "/a", "containerPath": "/b"}] * 2}, "a different containerPath", id="2"),
        pytest.param(
            {"mounts": [{"hostPath": "/a", "containerPath": f"/b{at}"} for at in ("{index}", "12")]},
            "mounts: expected a different containerPath for each and for each card, found '/b12' twice once {index}",
            id="paths-that-become-the-same",
        ),
        pytest.param(
            {"mounts": [{"hostPath": "/a/{uuid}", "containerPath": "/b"}]},
            "found '/b' twice once",
            id="path-of-2-cards",
        ),
        pytest.param({"mounts": [{"hostPath": "/{memory}", "containerPath": "/b"}]}, "found '{memory}'", id="amount"),
        pytest.param({"cdiDevices": ["gpu0"]}, "a full name such as vendor.com/class=name", id="cdi-name"),
    ],
)
def test_a_bad_file_is_one_sentence(fence: Any, sentence: str, tmp_path: Path) -> None:
    file = written(tmp_path, fence)
    with pytest.raises(MalformedFence) as refused:
        read_fence(file)
    assert str(refused.value).startswith(f"--fence: {file}: ")
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MalformedFence, match="the file cannot be read: No such file or directory"):
        read_fence(str(tmp_path / "missing"))


def test_what_names_a_uuid_is_left_out_for_a_card_without_one(tmp_path: Path) -> None:
    mounts = [{"hostPath": "/shares/{uuid}", "containerPath": "/share/{uuid}"}]
    read = read_fence(written(tmp_path, {"mounts": mounts}))
    assert with_fence({"": read}, HALF, 0, [gpu(0)]).mounts == ()

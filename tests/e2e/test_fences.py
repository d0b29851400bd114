"""A fence on a real node: a library in the containers refuses what their shares do not allow."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from gas.plugin.fences import fence
from tests.e2e.fake_nvml import FakeNvml, card, uuid
from tests.e2e.gpu_node import GpuNode
from tests.e2e.images import BUSYBOX
from tests.e2e.kube_api import Object
from tests.e2e.pods import pod
from tests.e2e.waiting import wait_for
from tests.other_words import NVIDIA

pytestmark = [
    pytest.mark.usefixtures("no_pods_after"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]

GIB = 2**30
WORDS = "--vocabularies=koordinator,vendor"
SOURCES = Path(__file__).parent / "fences"
LIBRARIES = ("/lib64", "/lib/x86_64-linux-gnu")
FITS, OUT_OF_MEMORY = "0", "2"


def build(directory: Path) -> None:
    """Compile the driver's library, the library that refuses, and a program that allocates."""
    directory.mkdir()
    shared = ("-shared", "-fPIC")
    for output, source, options in (
        ("libcuda.so.1", "cuda.c", (*shared, "-Wl,-soname,libcuda.so.1")),
        ("libfence.so", "fence.c", shared),
        ("allocate", "allocate.c", (str(directory / "libcuda.so.1"), "-Wl,-rpath,/fence")),
    ):
        command = ["cc", "-Wall", "-Werror", "-o", str(directory / output), str(SOURCES / source), *options]
        subprocess.run(command, check=True, capture_output=True, text=True)


def start(gpu_node: GpuNode, preset: str) -> None:
    """Start with a preset whose files are those of this test, with a library that refuses and a program's libraries."""
    directory = gpu_node.node.directory / preset
    build(directory)
    written = json.loads(Path(fence.__file__).with_name(f"{preset}.json").read_text(encoding="utf-8"))
    for mount in written["mounts"]:
        own = directory / mount["containerPath"].replace("/", "-")
        if "." in own.name:
            own.touch()
        else:
            own.mkdir()
        mount["hostPath"] = str(own)
    written["variables"]["LD_PRELOAD"] = "/fence/libfence.so"
    written["mounts"].append({"hostPath": str(directory), "containerPath": "/fence"})
    written["mounts"] += [{"hostPath": path, "containerPath": path} for path in LIBRARIES if Path(path).exists()]
    file = directory / "fence.json"
    file.write_text(json.dumps(written), encoding="utf-8")
    library = FakeNvml(gpu_node.node.directory / "nvml")
    library.write([card(minor, total=9 * GIB, reserved=GIB) for minor in range(2)])
    gpu_node.plugin_environment = library.environment
    gpu_node.stop_plugin()
    gpu_node.new_plugin((), "--card-sources=nvml", f"--fence={file}", WORDS)
    gpu_node.plugin.start()
    gpu_node.start_extender(WORDS)
    wait_for("the cards in the books", lambda: len(gpu_node.books()) == 2)


def asking(**limits: object) -> Object:
    return {"name": "main", "resources": {"limits": {name: str(amount) for name, amount in limits.items()}}}


def share(core: int, memory: int) -> Object:
    prefix = "koordinator.sh/gpu"
    return asking(**{f"{prefix}.shared": 1, f"{prefix}-core": core, f"{prefix}-memory": memory})


def create(gpu_node: GpuNode, name: str, of: Object, *mib: int) -> None:
    """Create a pod whose container allocates these amounts, one after the other, and prints the driver's results."""
    command = ["/bin/sh", "-c", f"/fence/allocate {' '.join(map(str, mib))}; sleep 100000"]
    of |= {"image": BUSYBOX.name, "imagePullPolicy": "Never", "command": command}
    gpu_node.create_unchanged(pod(name, of, annotations={"gas-card-order": "used-first"}))


def results(gpu_node: GpuNode, running: Object) -> list[str]:
    def printed() -> list[str]:
        return gpu_node.node.log(running, "main").split()

    wait_for("the program's results", lambda: len(printed()) == 3)
    return printed()


VARIABLES = {
    "hami-core": {
        "CUDA_DEVICE_MEMORY_LIMIT_0": ("1024M", "3072M"),
        "CUDA_DEVICE_SM_LIMIT": ("10", "50"),
    },
    "mps": {
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": ("0=1024M", "0=3072M"),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": ("10", "50"),
        "CUDA_MPS_PIPE_DIRECTORY": ("/tmp/nvidia-mps",) * 2,
    },
}
"""The variables of each preset, of the small container and of the large one."""


@pytest.mark.parametrize("preset", VARIABLES)
def test_containers_on_one_card_get_no_more_memory_than_their_shares(gpu_node: GpuNode, preset: str) -> None:
    start(gpu_node, preset)
    create(gpu_node, "small", share(10, GIB), 1025, 1024, 1)
    create(gpu_node, "large", share(50, 3 * GIB), 1025, 2047, 1)
    small, large = gpu_node.running(["small", "large"])
    environments = [gpu_node.node.environment(each, "main") for each in (small, large)]
    assert [each["NVIDIA_VISIBLE_DEVICES"] for each in environments] == [uuid(0)] * 2
    for name, values in VARIABLES[preset].items():
        assert tuple(each[name] for each in environments) == values
    stated = {mount.container_path for mount in fence.read_fence(preset).mounts}
    assert stated <= gpu_node.node.mounts(small, "main").keys()
    assert results(gpu_node, small) == [OUT_OF_MEMORY, FITS, OUT_OF_MEMORY]
    assert results(gpu_node, large) == [FITS, FITS, OUT_OF_MEMORY]

    gpu_node.create(pod("whole", asking(**{NVIDIA: 1})))
    (whole,) = gpu_node.running(["whole"])
    environment = gpu_node.node.environment(whole, "main")
    assert environment["NVIDIA_VISIBLE_DEVICES"] == uuid(1)
    assert not {"LD_PRELOAD", *VARIABLES[preset]} & environment.keys()
    assert "/fence" not in gpu_node.node.mounts(whole, "main")

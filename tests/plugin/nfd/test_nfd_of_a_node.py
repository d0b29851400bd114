"""The plugin with --write-node=nfd, in a node inside the process, and its flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from gas.plugin.flags import parse_flags
from gas.plugin.nfd.nfd_file import feature_text
from gas.plugin.nfd.part import NFD, NfdFlags
from gas.plugin.published_file import FileFault
from sandbox.hardware.fake_sysfs import FLEX_170, MAX_1550_XE, FakeGpu, fake_gpus
from tests.background import eventually
from tests.plugin.node_of_sandbox import sandbox_node

FLEX = fake_gpus(FLEX_170, 4)
GPU = "gpu.intel.com/"
UNLIKE = (*fake_gpus(FLEX_170, 1), *fake_gpus(MAX_1550_XE, 1, first=1))


async def test_a_feature_file_says_the_same_while_the_plugin_runs() -> None:
    async with sandbox_node(*FLEX) as node:
        file = node.directory / "features/gpus.txt"
        file.parent.mkdir()
        async with node.running_plugin("--write-node=nfd", f"--nfd-file={file}"):
            await eventually(file.exists)
            assert "gpu.intel.com/gpu-numbers=0.1.2.3\n" in file.read_text()
            assert "gpu.intel.com/gpu-numbers" not in node.node()["metadata"]["labels"]
        assert not file.exists()


@pytest.mark.parametrize(("gpus", "is_reported"), [(FLEX, False), ((*FLEX, *fake_gpus(MAX_1550_XE, 1, first=4)), True)])
async def test_cards_that_a_feature_file_cannot_describe_are_reported(
    caplog: pytest.LogCaptureFixture, gpus: tuple[FakeGpu, ...], is_reported: bool
) -> None:
    async with sandbox_node(*gpus) as node:
        file = node.directory / "gpus.txt"
        async with node.running_plugin("--write-node=nfd", f"--nfd-file={file}"):
            await eventually(file.exists)
    assert ("differ, which an NFD feature file cannot express" in caplog.text) is is_reported


async def test_the_feature_file_stays_when_the_older_one_ends() -> None:
    async with sandbox_node(*UNLIKE) as node:
        file = node.directory / "gpus.txt"
        flags = ("--write-node=nfd", f"--nfd-file={file}")
        old = node.running_plugin(*flags)
        await old.__aenter__()
        async with node.running_plugin(*flags):
            await eventually(file.exists)
            await old.__aexit__(None, None, None)
            assert file.exists()
        assert not file.exists()


@pytest.mark.parametrize(
    ("argv", "warnings"),
    [
        pytest.param([], (), id="default"),
        pytest.param(["--write-node=nfd", "--nfd-file=/f"], (), id="on"),
        pytest.param(["--nfd-file=/f"], ("ignored: --nfd-file; it needs --write-node=nfd",), id="the-file-alone"),
        pytest.param(["--nfd-file=/f", "--uninstall"], (), id="the-file-to-remove"),
        pytest.param(
            ["-resource-manager=false", "--write-node=nfd"],
            ("ignored: --write-node=nfd; with --resource-manager=false nothing is written",),
            id="without-the-resource-manager",
        ),
    ],
)
def test_flags(argv: list[str], warnings: tuple[str, ...]) -> None:
    flags = parse_flags(argv, environ={}, host_name="n")
    assert flags.warnings == warnings
    assert NFD.runs_with(flags) is ("--write-node=nfd" in argv and not warnings)
    default = "/etc/kubernetes/node-feature-discovery/features.d/intel-gpu-resources.txt"
    assert flags.of(NfdFlags).nfd_file == Path("/f" if "--nfd-file=/f" in argv else default)


def test_uninstall_removes_the_file_or_says_why_it_cannot(tmp_path: Path) -> None:
    file = tmp_path / "nfd"
    flags = parse_flags([f"--nfd-file={file}", "--uninstall"], environ={}, host_name="n")
    file.touch()
    NFD.clean_up(flags)
    assert not file.exists()
    file.mkdir()
    with pytest.raises(FileFault, match=f"cannot remove the NFD feature file {file}: not a plain file; NFD still"):
        NFD.clean_up(flags)


# contract P5.6
def test_labels_and_resources_are_lines_of_name_and_value() -> None:
    text = feature_text(
        {GPU + "gpu-numbers": "0.1", GPU + "gpu-numbers2": "Z2"}, {GPU + "tiles": 2, GPU + "memory.max": 5}
    )
    assert text == (
        "gpu.intel.com/gpu-numbers=0.1\n"
        "gpu.intel.com/gpu-numbers2=Z2\n"
        "gpu.intel.com/memory.max=5\n"
        "gpu.intel.com/tiles=2\n"
    )
    assert feature_text({}, {}) == ""

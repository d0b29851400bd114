"""The plugin with --cdi, in a node inside the process, and its flags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gas.daemon.flags import UsageError
from gas.plugin.cdi.part import CDI, Cdi, CdiFlags
from gas.plugin.flags import parse_flags
from gas.plugin.published_file import FileFault
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.builders import container, pod_json
from tests.plugin.node_of_sandbox import sandbox_node
from tests.plugin.pods_for_plugin import decided


async def test_cdi_names_stand_beside_the_device_nodes_and_in_the_spec_file() -> None:
    async with sandbox_node(*fake_gpus(FLEX_170, 4)) as node:
        file = node.directory / "cdi/gpus.json"
        async with node.running_plugin("--cdi=names", f"--cdi-file={file}"):
            pod = node.create(pod_json(container(i915=1), name="a", annotations=decided("card2")))
            assert await node.got(pod) == ["card2"]
            given = node.given(pod)
            assert given is not None
            assert given.cdi_devices == ("gpu.intel.com/card=card2",)
        names = [device["name"] for device in json.loads(file.read_text())["devices"]]
        assert names == ["card0", "card1", "card2", "card3"]


@pytest.mark.parametrize(
    ("argv", "mode", "warnings"),
    [
        pytest.param([], Cdi.NONE, (), id="default"),
        pytest.param(["--cdi=annotations", "--cdi-file=/c"], Cdi.ANNOTATIONS, (), id="on"),
        pytest.param(
            ["--cdi-file=/c"],
            Cdi.NONE,
            ("ignored: --cdi-file; it needs --cdi=names or --cdi=annotations",),
            id="the-file-alone",
        ),
        pytest.param(["--cdi-file=/c", "--uninstall"], Cdi.NONE, (), id="the-file-to-remove"),
    ],
)
def test_flags(argv: list[str], mode: Cdi, warnings: tuple[str, ...]) -> None:
    flags = parse_flags(argv, environ={}, host_name="n")
    assert (flags.of(CdiFlags).cdi, flags.warnings) == (mode, warnings)
    assert CDI.runs_with(flags) is (mode is not Cdi.NONE)
    named = "--cdi-file=/c" in argv
    assert flags.of(CdiFlags).cdi_file == Path("/c" if named else "/var/run/cdi/gpu.intel.com-card.json")


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(UsageError, match="expected none, names or annotations, found 'x'"):
        parse_flags(["--cdi=x"], environ={}, host_name="n")


def test_uninstall_removes_the_file_or_says_why_it_cannot(tmp_path: Path) -> None:
    file = tmp_path / "cdi"
    flags = parse_flags([f"--cdi-file={file}", "--uninstall"], environ={}, host_name="n")
    file.touch()
    CDI.clean_up(flags)
    assert not file.exists()
    file.mkdir()
    with pytest.raises(FileFault, match=f"cannot remove the CDI file {file}: not a plain file; remove it by hand"):
        CDI.clean_up(flags)

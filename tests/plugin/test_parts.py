"""Each part can be taken out: the program starts without it, and a part that is off is not imported."""

from __future__ import annotations

from typing import Any

import pytest

from gas.daemon.flags import flags_of
from gas.plugin.flags import COMMAND_LINE
from gas.plugin.part import Part
from gas.plugin.parts import PARTS
from tests.forks import outputs

_WITHOUT = """
import importlib.abc, importlib.util, sys

class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == GONE or name.startswith(GONE + "."):
            raise ModuleNotFoundError(f"{name} is not there")
        return None

sys.meta_path.insert(0, Without())
spec = importlib.util.find_spec("gas.plugin.parts")
with open(spec.origin, encoding="utf-8") as file:
    lines = file.read().splitlines()
(line,) = (each for each in lines if f" {GONE}." in each)
entry = line.rpartition(" ")[2]
lines = [each for each in lines if each is not line and each.strip() != f"{entry},"]
module = importlib.util.module_from_spec(spec)
sys.modules["gas.plugin.parts"] = module
exec(compile("\\n".join(lines), spec.origin, "exec"), module.__dict__)
"""

_CORE = """
import asyncio, tempfile
from gas.daemon.flags import help_text
from gas.plugin.assembly import Plugin
from gas.plugin.flags import Environment
from gas.plugin.flags import COMMAND_LINE, parse_flags
from gas.plugin.metrics import Metrics
from gas.plugin import program
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus, write_tree
from pathlib import Path

async def serve():
    with tempfile.TemporaryDirectory() as directory:
        write_tree(Path(directory), fake_gpus(FLEX_170, 2))
        flags = parse_flags(["--resource-manager=false", f"--prefix={directory}"], environ={}, host_name="n")
        plugin = Plugin(None, flags, Environment(), Metrics("1"))
        await plugin.scanner.scan_once()
        shown = [device.id for server in plugin.registrations for device in server.devices or ()]
        assert shown == ["card0-0", "card1-0"], shown

asyncio.run(serve())
print(help_text(COMMAND_LINE))
"""

_LOADED = """
print(*(name for name in sys.modules if name.startswith("gas.plugin.")))
"""


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    """Return the output of the core without each part, and with everything off."""
    without = {part.name: f"GONE = 'gas.plugin.{part.name}'\n{_WITHOUT}{_CORE}" for part in PARTS}
    return outputs({**without, "": f"import sys\n{_CORE}{_LOADED}"})


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_the_plugin_runs_without_the_package_of_a_part(written: dict[str, str], part: Part[Any]) -> None:
    helped = written[part.name]
    assert helped.startswith("Usage: gas-plugin [flags]"), helped
    own = {each.name for each in flags_of(COMMAND_LINE)} - {each.name for each in flags_of(COMMAND_LINE.core)}
    of_part = {each.name for each in flags_of(COMMAND_LINE) if each.attribute in part.flags.__dataclass_fields__}
    assert of_part <= own
    words = helped.replace("=", " ").replace(",", " ").split()
    assert not {f"--{name}" for name in of_part} & set(words)
    for choice in (part.card_source, part.node_writer):
        assert choice is None or choice.name not in words
    assert {f"--{name}" for name in own - of_part} <= set(words)


def test_a_part_that_is_off_is_not_imported(written: dict[str, str]) -> None:
    loaded = set(written[""].splitlines()[-1].split())
    packages = tuple(f"gas.plugin.{part.name}." for part in PARTS)
    assert {name for name in loaded if name.startswith(packages)} == {f"{each}part" for each in packages}
    assert "gas.plugin.published_file" not in loaded, "which only parts need"

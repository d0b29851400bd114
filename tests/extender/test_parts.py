"""Every optional part of the extender can be taken out of the program, and is not loaded while it is off."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from gas.extender.command_line import parse_flags
from gas.extender.parts import PARTS
from tests.forks import outputs

ROOT = Path(__file__).parents[2]
EXTENDER = ROOT / "gas" / "extender"
LIST = EXTENDER / "parts.py"
FOLDERS = re.findall(r"^from gas\.extender\.(\w+)\.part import", LIST.read_text(encoding="utf-8"), re.MULTILINE)
"""The packages of the parts, as the list names them."""

WITHOUT = """
import importlib.util, re, sys

class Removed:
    def find_spec(self, name, path=None, target=None):
        if name == PACKAGE or name.startswith(PACKAGE + "."):
            raise ModuleNotFoundError(f"{name} has been removed", name=name)

sys.meta_path.insert(0, Removed())
text = open(LIST, encoding="utf-8").read()
(line, entry), = re.findall(rf"^(from {PACKAGE}\\.part import (\\w+)\\n)", text, re.MULTILINE)
text = re.sub(rf"^ +{entry},\\n", "", text.replace(line, ""), flags=re.MULTILINE)
spec = importlib.util.spec_from_loader("gas.extender.parts", loader=None)
module = importlib.util.module_from_spec(spec)
exec(compile(text, LIST, "exec"), module.__dict__)
sys.modules["gas.extender.parts"] = module
"""
"""Make the package of a part impossible to import, and take its two lines out of the list."""


SMOKE = "import asyncio\nfrom tests.extender.core_smoke import smoke\nasyncio.run(smoke())\n"
HELP = (
    "from gas.daemon.flags import help_text\nfrom gas.extender.command_line import COMMAND_LINE\n"
    "print(help_text(COMMAND_LINE))"
)
LOADED = "import sys\nprint(*(name for name in sys.modules if name.startswith('gas.extender.')))"


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    """Return the output of the core without each part, and with everything off."""
    without = {
        folder: f"PACKAGE = 'gas.extender.{folder}'\nLIST = {str(LIST)!r}\n{WITHOUT}{SMOKE}{HELP}" for folder in FOLDERS
    }
    return outputs({**without, "": SMOKE + LOADED})


def test_every_folder_with_a_declaration_is_in_the_list() -> None:
    assert sorted(FOLDERS) == sorted(path.parent.name for path in EXTENDER.glob("*/part.py"))
    assert len(FOLDERS) == len(PARTS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_without_a_part_the_program_starts_and_places_pods_and_does_not_know_its_flags(
    written: dict[str, str], folder: str
) -> None:
    """`smoke` filters and binds over HTTP and looks into the ledger; after it come the lines of --help."""
    output = written[folder]
    assert output.startswith("bound to card0, held\n"), output
    names = set(re.findall(r"^  --([\w-]+)", output, re.MULTILINE))
    (own,) = (part.flags for part in PARTS if part.build.__module__ == f"gas.extender.{folder}.part")
    assert names.isdisjoint(field.metadata["flag"].name for field in (fields(own) if own is not None else ()))
    assert "port" in names


def test_with_everything_off_only_the_declarations_of_parts_are_loaded(written: dict[str, str]) -> None:
    smoke, loaded_names = written[""].splitlines()
    assert smoke == "bound to card0, held"
    loaded = set(loaded_names.split())
    off = [part.build.__module__ for part in PARTS if not part.is_on(parse_flags([]))]
    assert len(off) == len(PARTS) - 3  # requeuing, telemetry and device classes have no flag
    for declaration in off:
        package = declaration.rpartition(".")[0] + "."
        assert {name for name in loaded if name.startswith(package)} == {declaration}
    assert "gas.extender.admission.app" not in loaded


def test_the_command_line_loads_no_library_that_serves_or_measures() -> None:
    program = "import sys, gas.extender.command_line\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert {"asyncio", "starlette", "prometheus_client", "aiohttp"}.isdisjoint(done.stdout.split())
    assert "gas.extender.parts" in done.stdout.split()


def core_modules() -> Iterator[Path]:
    yield from (path for path in EXTENDER.glob("*.py") if path.name != "parts.py")


def test_the_core_has_no_is_none_on_a_feature() -> None:
    """Count `is None` and `is not None` on what a part may have added, in every module of the core: there must be none.

    A feature is a name or an attribute that is called as a part, a verb of a part, or the object of one.
    """
    features = {*FOLDERS, "preempt", "prioritize", "scores", "reviews", "leader", "hosts", "unbound", "budget_watch"}
    found = [
        f"{path.name}:{node.lineno}: {ast.unparse(node)}"
        for path in core_modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare)
        and isinstance(node.ops[0], (ast.Is, ast.IsNot))
        and isinstance(node.comparators[0], ast.Constant)
        and node.comparators[0].value is None
        and ast.unparse(node.left).rpartition(".")[2].lstrip("_") in features
    ]
    assert found == []

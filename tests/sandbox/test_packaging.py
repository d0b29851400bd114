"""Neither the wheel nor the image has any part of the sandbox, and no installed module imports it."""

from __future__ import annotations

import ast
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]


def test_the_wheel_has_only_gas_and_the_configurator() -> None:
    files = WheelBuilder(str(ROOT)).recurse_included_files()
    assert {file.distribution_path.partition("/")[0] for file in files} == {"gas", "configurator"}


def test_the_image_is_made_of_nothing_else() -> None:
    lines = (ROOT / "Containerfile").read_text().splitlines()
    copied = {
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    }
    assert {"gas", "configurator"} <= copied
    assert copied.isdisjoint({".", "sandbox", "simulation", "tests", "benchmarks", "examples"})


def test_no_installed_module_imports_the_sandbox() -> None:
    for path in (*(ROOT / "gas").rglob("*.py"), *(ROOT / "configurator").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name.partition(".")[0] in ("sandbox", "simulation")], path

"""How a checkout is set up: the environment of ``make``, and the dependencies of ``pip install .``."""

from __future__ import annotations

import ast
import os
import sys
import threading
import time
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from scripts import set_up

ROOT = Path(__file__).parents[1]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, ...]]:
    """The commands that a set-up in an empty checkout runs; each takes a moment."""
    ran: list[tuple[str, ...]] = []

    def run(*command: str) -> None:
        time.sleep(0.05)
        ran.append(command)

    for name in ("requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(set_up, "run", run)
    monkeypatch.setattr(sys, "argv", ["set_up.py", ".venv", "runtime"])
    return ran


def test_two_set_ups_at_once_do_the_work_once(commands: list[tuple[str, ...]]) -> None:
    threads = [threading.Thread(target=set_up.main) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [command[1:3] for command in commands] == [("-m", "venv"), ("-m", "pip"), ("-m", "pip")]


def test_a_changed_lock_file_is_installed_again(commands: list[tuple[str, ...]], tmp_path: Path) -> None:
    set_up.main()
    set_up.main()
    assert len(commands) == 3
    later = time.time() + 10
    os.utime(tmp_path / "requirements.lock", (later, later))
    set_up.main()
    assert len(commands) == 6


def test_an_interrupted_set_up_starts_again(commands: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_command: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(set_up, "run", fail)
        with pytest.raises(KeyboardInterrupt):
            set_up.main()
    set_up.main()
    assert len(commands) == 3


def test_an_old_python_is_named_in_a_sentence(commands: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))
    with pytest.raises(SystemExit, match=r"gas needs Python 3.11 or later; found 3.9.2. Name one: make PYTHON="):
        set_up.main()
    assert not commands


def imported_packages(folder: Path, without: str = "") -> set[str]:
    files = [file for file in folder.rglob("*.py") if not without or without not in file.parts]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return (
        {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"gas", "configurator", "_typeshed"}
    )


def test_every_program_starts_after_a_plain_pip_install() -> None:
    """Only the demo needs more than the dependencies: the extra ``sandbox``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = {requirement.partition(">")[0] for requirement in project["dependencies"]}
    used = imported_packages(ROOT / "gas", without="sandbox") | imported_packages(ROOT / "configurator")
    distributions = packages_distributions()
    missing = {name for name in used if not any(_is_in(each, installed) for each in distributions.get(name, [name]))}
    assert missing == set()


def _is_in(distribution: str, installed: set[str]) -> bool:
    return distribution.lower().replace(".", "-").replace("_", "-") in installed

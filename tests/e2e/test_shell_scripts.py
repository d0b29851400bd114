"""Debian's shellcheck finds no fault in the shell scripts, nor in those inside manifests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.project_image import REPOSITORY

SHELLS = ("sh", "bash")


def written_files() -> list[Path]:
    """Return the files of the checkout that Git knows."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return [REPOSITORY / name for name in listed.stdout.split("\0") if name]


def scripts() -> Iterator[tuple[str, str]]:
    """Yield name and text of each script, of one in a manifest with a first line that names its shell."""
    for file in written_files():
        name, head = str(file.relative_to(REPOSITORY)), file.read_bytes()[:40].partition(b"\n")[0]
        if head.startswith(b"#!") and head.rpartition(b"/")[2].decode().removeprefix("env ") in SHELLS:
            yield name, file.read_text()
        elif file.suffix == ".yaml" and "chart/templates" not in name:
            for document in yaml.safe_load_all(file.read_text()):
                for at, (shell, text) in enumerate(commands(document)):
                    yield f"{name}-{at}", f"#!/bin/{shell}\n{text}\n"


def commands(value: object) -> Iterator[tuple[str, str]]:
    """Yield shell and script of every list of words such as ``[sh, -c, SCRIPT]``."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        if len(value) >= 3 and value[0] in SHELLS and value[1] in ("-c", "-ec"):
            yield value[0], value[2]
        for each in value:
            yield from commands(each)


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in scripts()])
def test_shellcheck_finds_nothing(text: str) -> None:
    done = subprocess.run(["shellcheck", "-"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

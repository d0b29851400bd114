"""docs/configurator.md says what the program does."""

from __future__ import annotations

import re
from pathlib import Path

from configurator.flags import Flags
from configurator.kubernetes_version import API_VERSION, FARTHEST, NEWEST, OLDEST
from gas.daemon.flags import flags_of

PAGE = (Path(__file__).parents[2] / "docs/configurator.md").read_text(encoding="utf-8")


def test_commands_use_only_flags_that_exist() -> None:
    used = re.findall(r"gas-configurator((?: -[^\s`]+)+)", PAGE)
    names = {flag.lstrip("-").partition("=")[0] for line in used for flag in line.split()}
    assert names
    assert names <= {flag.name for flag in flags_of(Flags)}


def test_releases_are_the_programs() -> None:
    assert f"It supports Kubernetes 1.{OLDEST} to 1.{NEWEST}" in PAGE
    assert f"up to 1.{FARTHEST}" in PAGE
    assert f"`{API_VERSION}`" in PAGE

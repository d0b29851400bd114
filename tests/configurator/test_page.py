"""docs/configurator.md says what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from configurator.flags import Flags
from configurator.kubernetes_version import GROUP, KubernetesVersion
from gas.daemon.flags import flags_of

PAGE = (Path(__file__).parents[2] / "docs/configurator.md").read_text(encoding="utf-8")


def test_commands_use_only_flags_that_exist() -> None:
    used = re.findall(r"gas-configurator((?: -[^\s`]+)+)", PAGE)
    names = {flag.lstrip("-").partition("=")[0] for line in used for flag in line.split()}
    assert names
    assert names <= {flag.name for flag in flags_of(Flags)}


@pytest.mark.parametrize("minor", range(22, 37))
def test_the_table_of_versions_is_the_programs(minor: int) -> None:
    version = KubernetesVersion(minor)
    rows = re.findall(r"^\| (1\.[^|]*) \| `(\w+)` \| ([^|]*) \|", PAGE, re.MULTILINE)
    found = [row for row in rows if minor in _minors(row[0])]
    assert len(found) == 1
    _, newest, readable = found[0]
    assert version.newest_api_version == f"{GROUP}/{newest}"
    names = ("v1beta1", "v1beta2", "v1beta3", "v1")
    assert re.findall(r"`(\w+)`", readable) == [name for name in names if version.reads(f"{GROUP}/{name}")]


def _minors(text: str) -> set[int]:
    numbers = [int(number) for number in re.findall(r"1\.(\d+)", text)]
    if "later" in text:
        return set(range(numbers[0], 100))
    if " to " in text:
        return set(range(numbers[0], numbers[1] + 1))
    return set(numbers)

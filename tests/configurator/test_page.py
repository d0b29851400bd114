"""docs/configurator.md says what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from configurator.flag_table import DEPLOYMENT_FLAGS, FLAG_GROUPS
from configurator.kubernetes_version import GROUP, KubernetesVersion

PAGE = (Path(__file__).parents[2] / "docs/configurator.md").read_text(encoding="utf-8")
TABLE = PAGE[PAGE.index("## Flags") :]
FLAGS = {flag.name: flag for group in FLAG_GROUPS.values() for flag in group}


def test_the_table_has_every_flag_under_its_group() -> None:
    titles_and_flags = re.findall(r"^\| (?:\*\*(.+?)\*\*|`--?([a-z-]+)`) \|", TABLE, re.MULTILINE)
    expected = [
        entry for title, flags in FLAG_GROUPS.items() for entry in ((title, ""), *(("", flag.name) for flag in flags))
    ]
    assert titles_and_flags == expected


@pytest.mark.parametrize("name", [name for name, flag in FLAGS.items() if re.search(r"\(([^()]*)\)$", flag.meaning)])
def test_the_table_has_the_default_of_the_help_text(name: str) -> None:
    match = re.search(r"\(([^()]*)\)$", FLAGS[name].meaning)
    row = re.search(rf"^\| `--?{name}` \| ([^|]*) \|", TABLE, re.MULTILINE)
    assert match is not None
    assert row is not None
    assert row[1].replace("`", "").replace(" (also", "").strip() == match[1]


def test_commands_use_only_flags_that_exist() -> None:
    used = re.findall(r"gas-configurator((?: -[^\s`]+)+)", PAGE)
    names = {flag.lstrip("-").partition("=")[0] for line in used for flag in line.split()}
    assert names
    assert names <= FLAGS.keys()


def test_flags_without_effect_are_named() -> None:
    for name in DEPLOYMENT_FLAGS:
        assert f"`-{name}`" in PAGE


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

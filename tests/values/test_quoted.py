"""Text of others inside messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.values.quoted import did_you_mean, listed, most_similar, quoted, shown

NESTED: Any = "x"
for _ in range(30):
    NESTED = [NESTED] * 9


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("card0", "'card0'", id="plain"),
        pytest.param("", "''", id="empty"),
        pytest.param("a\nb\x1b[31m", r"'a\nb\x1b[31m'", id="control-characters-are-escaped"),
        pytest.param("\u202egnp", r"'\u202egnp'", id="direction-marks-are-escaped"),
        pytest.param("x" * 41, "'" + "x" * 40 + "'…", id="long-is-cut"),
        pytest.param("\x00" * 40, "'" + r"\x00" * 10 + "'…", id="long-once-escaped-is-cut"),
        pytest.param(1.5, "'1.5'", id="number"),
        pytest.param({"a": ["b"]}, "\"{'a': ['b']}\"", id="map"),
        pytest.param(2**40_000, f"'0x1{'0' * 37}'…", id="number-that-python-refuses-to-write"),
        pytest.param(NESTED, "'[[[...], [...], [...], [...], [...], [..'…", id="aliases-that-multiply"),
    ],
)
def test_quoted(value: object, text: str) -> None:
    assert quoted(value) == text


@pytest.mark.parametrize(
    ("name", "longest", "text"),
    [
        pytest.param("memory.max", 63, "memory.max", id="as-it-is"),
        pytest.param("x" * 63, 63, "x" * 63, id="longest"),
        pytest.param("x" * 64, 63, "'" + "x" * 40 + "'…", id="too-long"),
        pytest.param("x" * 64, 64, "x" * 64, id="longer-by-request"),
        pytest.param("a\x1b[31m", 63, r"'a\x1b[31m'", id="control-characters"),
    ],
)
def test_shown(name: str, longest: int, text: str) -> None:
    assert shown(name, longest) == text


def test_a_name_is_compared_with_the_first_known_ones_only() -> None:
    known = {f"r{at:04}" for at in range(1000)}
    assert [most_similar(name, known) for name in ("r0499x", "r0999x")] == ["r0499", "r0499"]


@given(st.text(st.characters(), max_size=100))
def test_quoted_is_short_and_printable(text: str) -> None:
    assert len(quoted(text)) <= 43
    assert quoted(text).isprintable()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        pytest.param(["a"], "'a'", id="one"),
        pytest.param(["a", "b", "c"], "'a', 'b', 'c'", id="three"),
        pytest.param(list("abcde"), "'a', 'b', 'c' and 2 more", id="more-are-counted"),
    ],
)
def test_listed(values: list[str], text: str) -> None:
    assert listed(values) == text


@pytest.mark.parametrize(
    ("name", "similar"),
    [
        pytest.param("gas-alow", "gas-allow", id="typo"),
        pytest.param("gpu.intel.com/memory.mx", "gpu.intel.com/memory.max", id="resource"),
        pytest.param("gpu.intel.com/xe", "", id="a-shared-prefix-is-not-enough"),
        pytest.param("i915", "gpu.intel.com/i915", id="without-prefix"),
        pytest.param("koordinator.sh/gpus", "koordinator.sh/gpu", id="of-two-the-one-with-this-prefix"),
        pytest.param("nvidea.com/gpu", "nvidia.com/gpu", id="typo-in-the-prefix"),
        pytest.param("memory.max" * 1000, "", id="long"),
        pytest.param("", "", id="empty"),
    ],
)
def test_most_similar(name: str, similar: str) -> None:
    known = ["gas-allow", "koordinator.sh/gpu", "nvidia.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/memory.max"]
    assert most_similar(name, known) == similar
    assert did_you_mean(name, known, "no") == (f"did you mean {similar}?" if similar else "no")

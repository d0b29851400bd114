"""The text of the controller's files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.plugin.limits.limit_files import DMEM, MalformedLimits, regions_of

# As in Documentation/admin-guide/cgroup-v2.rst.
CAPACITY = "drm/0000:03:00.0/vram0 8514437120\ndrm/0000:03:00.0/stolen 67108864\n"
LIMITS = "drm/0000:03:00.0/vram0 1073741824\ndrm/0000:03:00.0/stolen max\n"


def test_the_files_of_the_kernels_documentation() -> None:
    assert DMEM.parse_capacity(CAPACITY) == {
        "drm/0000:03:00.0/vram0": 8514437120,
        "drm/0000:03:00.0/stolen": 67108864,
    }
    assert DMEM.parse_limits(LIMITS) == {"drm/0000:03:00.0/vram0": 2**30, "drm/0000:03:00.0/stolen": None}
    assert (DMEM.parse_capacity(""), DMEM.parse_limits("")) == ({}, {})


def test_the_regions_of_a_card_are_its_own_memory() -> None:
    capacity = {
        "drm/0000:03:00.0/vram0": 1,
        "drm/0000:03:00.0/vram1": 2,
        "drm/0000:03:00.0/stolen": 3,
        "drm/0000:03:00.0/vram0x": 4,
        "drm/0000:04:00.0/vram": 5,
        "dma-heap/cma": 6,
    }
    assert regions_of("0000:03:00.0", capacity) == {"drm/0000:03:00.0/vram0": 1, "drm/0000:03:00.0/vram1": 2}
    assert regions_of("0000:04:00.0", capacity) == {"drm/0000:04:00.0/vram": 5}
    assert regions_of("0000:03:00", capacity) == {}


@pytest.mark.parametrize(
    "text", ["vram0\n", " 5\n", "drm/x -5\n", "drm/x 5 6\n", "drm/x \ufffd\n", f"drm/x {'9' * 21}\n"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(MalformedLimits, match=r"^expected .*, found '"):
        DMEM.parse_limits(text)


names = st.from_regex(r"drm/[0-9a-f:.]{1,20}/[a-z0-9]{1,9}", fullmatch=True)


@given(st.dictionaries(names, st.one_of(st.none(), st.integers(0, 2**63))))
def test_what_is_written_is_read_back(limits: dict[str, int | None]) -> None:
    text = "".join(DMEM.format_limit(name, limit) for name, limit in limits.items())
    assert DMEM.parse_limits(text) == limits

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.cluster.watch_events import EndlessLine, LineSplitter


@given(
    lines=st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line and not line.isspace())),
    cuts=st.lists(st.integers(0, 200)),
)
def test_lines_are_whole_wherever_the_chunks_are_cut(lines: list[bytes], cuts: list[int]) -> None:
    body = b"".join(line + b"\n" for line in lines)
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    splitter = LineSplitter()
    chunks = [body[start:end] for start, end in pairwise(edges)]
    assert [line for chunk in chunks for line in splitter.feed(chunk)] == lines


def test_empty_lines_are_left_out() -> None:
    assert LineSplitter().feed(b"\n{}\r\n\r\n \n{}\n") == [b"{}\r", b"{}"]


def test_an_endless_line_is_refused_before_it_fills_the_memory() -> None:
    splitter = LineSplitter(longest=10)
    splitter.feed(b"x" * 10)
    with pytest.raises(EndlessLine):
        splitter.feed(b"x")

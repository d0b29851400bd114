"""Versions, history and snapshots."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.api.storage import Compacted, Storage


def _value(text: str) -> dict[str, Any]:
    return {"metadata": {"name": "n"}, "text": text}


def test_all_kinds_share_one_version_counter() -> None:
    storage = Storage()
    assert storage.put("pods", "a", _value("1")).version == 1
    assert storage.put("nodes", "a", _value("1")).version == 2
    assert storage.remove("pods", "a").version == 3
    assert storage.version == 3


def test_an_equal_value_writes_nothing() -> None:
    storage = Storage()
    storage.put("pods", "a", _value("1"))
    assert storage.put("pods", "a", _value("1")).version == 1
    assert storage.version == 1


def test_history_before_the_window_is_not_available() -> None:
    storage = Storage(history=2)
    for text in "123":
        storage.put("pods", "a", _value(text))
    assert [change.after.version for change in storage.changes(1)] == [2, 3]
    with pytest.raises(Compacted, match="version 0 is no longer available; the history begins at version 1"):
        storage.changes(0)
    storage.compact()
    assert storage.changes(3) == []
    with pytest.raises(Compacted):
        storage.changes(2)
    with pytest.raises(Compacted):
        storage.objects("pods", 2)


def test_listeners_are_called_after_each_write_until_they_are_removed() -> None:
    storage, heard = Storage(), []
    leave = storage.listen(lambda: heard.append(storage.version))
    storage.put("pods", "a", _value("1"))
    storage.put("pods", "a", _value("1"))
    storage.remove("pods", "a")
    leave()
    storage.put("pods", "a", _value("2"))
    assert heard == [1, 2]


@given(
    st.lists(st.tuples(st.sampled_from(["pods", "nodes"]), st.sampled_from("abc"), st.sampled_from("12-"))),
    st.integers(0, 30),
)
def test_an_older_state_equals_the_list_at_that_version(writes: list[tuple[str, str, str]], back: int) -> None:
    storage = Storage()
    states: dict[int, list[bytes]] = {0: []}
    for kind, key, text in writes:
        if text != "-":
            storage.put(kind, key, _value(text))
        elif storage.get(kind, key) is not None:
            storage.remove(kind, key)
        states[storage.version] = [stored.encoded for stored in storage.objects("pods")]
    version = max(storage.version - back, 0)
    assert [stored.encoded for stored in storage.objects("pods", version)] == states[version]

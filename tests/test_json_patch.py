from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.json_patch import Operation, pointer, set_annotations
from tests.extender.admission.reviews import apply, as_json

TEXTS = st.text("ab/~0é", max_size=5)


@pytest.mark.parametrize(
    ("parts", "path"),
    [(("spec", "schedulerName"), "/spec/schedulerName"), (("a/b", "~"), "/a~1b/~0"), (("~1",), "/~01"), (("",), "/")],
)
def test_a_pointer_escapes_its_parts(parts: tuple[str, ...], path: str) -> None:
    assert pointer(*parts) == path


def test_an_operation_has_the_names_of_the_standard() -> None:
    assert as_json(Operation("add", "/a", {"b": "c"})) == {"op": "add", "path": "/a", "value": {"b": "c"}}


@given(present=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=3), wanted=st.dictionaries(TEXTS, TEXTS, max_size=3))
def test_after_the_patch_an_object_has_the_wanted_annotations_and_needs_no_further_one(
    present: dict[str, str] | None, wanted: dict[str, str]
) -> None:
    metadata: dict[str, Any] = {"name": "x"} if present is None else {"name": "x", "annotations": present}
    document = copy.deepcopy({"metadata": metadata})
    for operation in set_annotations(present, wanted):
        apply(document, as_json(operation))
    after = document["metadata"].get("annotations")
    assert (after or {}) == {**(present or {}), **wanted}
    assert set_annotations(after, wanted) == ()

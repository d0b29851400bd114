from __future__ import annotations

import pytest

from gas.objects.json_patch import Operation, pointer
from tests.extender.admission.reviews import as_json


@pytest.mark.parametrize(
    ("parts", "path"),
    [(("spec", "schedulerName"), "/spec/schedulerName"), (("a/b", "~"), "/a~1b/~0"), (("~1",), "/~01"), (("",), "/")],
)
def test_a_pointer_escapes_its_parts(parts: tuple[str, ...], path: str) -> None:
    assert pointer(*parts) == path


def test_an_operation_has_the_names_of_the_standard() -> None:
    assert as_json(Operation("add", "/a", {"b": "c"})) == {"op": "add", "path": "/a", "value": {"b": "c"}}

import pytest

from gas.values.yaml_text import may_grow_too_much


@pytest.mark.parametrize(
    ("text", "grows"),
    [
        pytest.param("a: &a [1]\nb: [" + "*a, " * 99 + "]", False, id="a-hundred-times"),
        pytest.param("a: &a [1]\nb: [" + "*a, " * 100 + "]", True, id="more"),
        pytest.param("a: &a [1]\nb: &b {x: *a, y:\n *a}\nc: [" + "*b," * 33 + "]", True, id="nested"),
        pytest.param("a: &a [1]\n" + "b: &a [*a, *a]\n" * 5, True, id="a-name-again"),
        pytest.param("a: &*a [1]\nb: [" + "**a, " * 100 + "]", True, id="a-name-with-a-star"),
        pytest.param("a: &:a [1]\nb: [" + "*:a, " * 100 + "]", True, id="a-name-with-a-colon"),
        pytest.param("a: &&a [1]\nb: [" + "*&a, " * 100 + "]", True, id="a-name-with-an-ampersand"),
        pytest.param("a: &a [1]\nb: [" + "\u2028*a," * 100 + "]", True, id="lines-of-unicode"),
        pytest.param("a: &a\x85 [1]\nb: [" + "\x85*a," * 100 + "]", True, id="next-lines"),
        pytest.param("run: &run rm *.a *.b *.c *.d *.e *.f *.g *.h && kill *run*", False, id="no-anchors"),
    ],
)
def test_what_aliases_may_multiply_is_bounded(text: str, grows: bool) -> None:
    assert may_grow_too_much(text.encode()) is grows
    assert may_grow_too_much(text.encode("utf-16")) is grows

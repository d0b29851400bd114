import json

import pytest

from gas.values.yaml_text import InvalidYaml, may_grow_too_much, parse_yaml


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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param(json.dumps("\U0001f525\U0010ffff"), "\U0001f525\U0010ffff", id="json"),
        pytest.param(json.dumps(json.dumps("\U0001f525")), json.dumps("\U0001f525"), id="json-in-json"),
        pytest.param(r'"\\\ud83d\udd25"', "\\\U0001f525", id="after-a-backslash"),
        pytest.param('|\n  ["\\ud83d\\udd25"]', '["\U0001f525"]', id="block"),
    ],
)
def test_characters_may_be_written_as_json_does(text: str, value: str) -> None:
    assert parse_yaml(text.encode()) == [value]


def test_plain_words_mean_what_they_mean_for_kubectl() -> None:
    """Asked in tests/e2e/test_inspection.py."""
    assert parse_yaml(b"[010, -010, 0o10, 08, 0x10, '010', 1:30, 007, yes, Off, y, 'no', noon, ~, 2026-01-01]") == [
        [8, -8, 8, 8, 16, "010", "1:30", 7, True, False, True, "no", "noon", None, "2026-01-01"]
    ]


@pytest.mark.parametrize("text", [r'"\ud83d"', r'"\udd25\ud83d"', r'"\\\uD83D x"', r'"\ud83d\ud83d\udd25"'])
def test_half_a_character_is_refused(text: str) -> None:
    with pytest.raises(InvalidYaml, match="half a character"):
        parse_yaml(text.encode())

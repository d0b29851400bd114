from __future__ import annotations

import pytest

from gas.plugin.discovery.pci_ids import AllowedAndDenied, MalformedPciId, parse_id_lists


@pytest.mark.parametrize(
    ("allow", "deny", "expected"),
    [
        pytest.param("", "", (set(), set()), id="flags-that-are-not-given-say-nothing"),
        pytest.param("0x56c0", "", ({"0x56c0"}, set()), id="one-id"),
        pytest.param("", "0x56c0,0x56c1", (set(), {"0x56c0", "0x56c1"}), id="csv"),
        pytest.param(" 0x56C0 , 0X0bda ", "", ({"0x56c0", "0x0bda"}, set()), id="blanks-and-capitals-do-not-count"),
    ],
)
def test_lists_of_ids(allow: str, deny: str, expected: tuple[set[str], set[str]]) -> None:
    assert parse_id_lists(allow, deny) == tuple(map(frozenset, expected))


# contract P1.10
@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("0x56c", "'0x56c'", id="part-of-an-id"),
        pytest.param("0x56c0,", "''", id="an-empty-entry"),
        pytest.param(",", "''", id="only-a-comma"),
        pytest.param("56c0", "'56c0'", id="without-0x"),
        pytest.param("0x56c00", "'0x56c00'", id="too-long"),
        pytest.param("0x56c0 0x56c1", "'0x56c0 0x56c1'", id="no-comma"),
        pytest.param("flex", "'flex'", id="a-name"),
        pytest.param("0x56c٣", "'0x56c٣'", id="a-digit-of-another-script"),
    ],
)
def test_what_is_no_id_is_refused(text: str, found: str) -> None:
    for flag, lists in (("--allow-ids", (text, "")), ("--deny-ids", ("", text))):
        with pytest.raises(MalformedPciId) as refused:
            parse_id_lists(*lists)
        assert str(refused.value) == (
            f"{flag}: expected PCI device ids such as 0x56c0,0x56c1, found {found} among them"
        )


# contract P1.10
def test_both_lists_at_once_are_refused() -> None:
    with pytest.raises(AllowedAndDenied, match="--allow-ids and --deny-ids exclude each other"):
        parse_id_lists("0x56c0", "0x56c1")

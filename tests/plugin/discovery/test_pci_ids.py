from __future__ import annotations

import pytest

from gas.plugin.discovery.card_models import parse_pci_ids
from gas.values.errors import InvalidEntry


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", set(), id="no-flag"),
        pytest.param("0x56c0", {"0x56c0"}, id="one-id"),
        pytest.param("0x56c0,0x56c1", {"0x56c0", "0x56c1"}, id="csv"),
        pytest.param(" 0x56C0 , 0X0bda ", {"0x56c0", "0x0bda"}, id="blanks-and-capitals-are-ignored"),
    ],
)
def test_lists_of_ids(text: str, expected: set[str]) -> None:
    """Contract P1.10."""
    assert parse_pci_ids(text) == expected


# contract P1.10
@pytest.mark.parametrize(
    ("text", "entry"),
    [
        pytest.param("0x56c", "0x56c", id="part-of-an-id"),
        pytest.param("0x56c0,", "", id="an-empty-entry"),
        pytest.param(",", "", id="only-a-comma"),
        pytest.param("56c0", "56c0", id="without-0x"),
        pytest.param("0x56c00", "0x56c00", id="too-long"),
        pytest.param("0x56c0 0x56c1", "0x56c0 0x56c1", id="no-comma"),
        pytest.param("flex", "flex", id="a-name"),
        pytest.param("0x56c٣", "0x56c٣", id="a-digit-of-another-script"),
    ],
)
def test_malformed_lists_are_refused(text: str, entry: str) -> None:
    with pytest.raises(InvalidEntry, match=r"^PCI device ids such as 0x56c0,0x56c1$") as refused:
        parse_pci_ids(text)
    assert refused.value.entry == entry

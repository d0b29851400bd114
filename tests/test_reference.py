"""The page with every name is what the code says, and leaves none out."""

from __future__ import annotations

import pytest

from gas.vocabularies.intel import names
from scripts.reference import PAGE, metrics, page

PARTS = {"MONITORING_RESOURCES", "COUNT_RESOURCES", "WRITTEN_ANNOTATIONS", "USERS_ANNOTATIONS", "BOOKED_ANNOTATIONS"}


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python -m scripts.reference"


@pytest.mark.parametrize(
    "name",
    [
        each
        for constant, value in vars(names).items()
        if constant.isupper() and (constant in PARTS or isinstance(value, str))
        for each in (value if constant in PARTS else [value])
    ],
)
def test_the_page_has_the_name(name: str) -> None:
    assert name in page()


def test_every_metric_has_a_kind_and_a_meaning() -> None:
    rows = [row for rows in metrics().values() for row in rows]
    assert len({row[0] for row in rows}) == len(rows) > 40
    assert all(kind and meaning for _, kind, _, meaning in rows)
    labels = {row[0]: row[2] for row in rows}
    assert labels["gas_extender_card_booked"] == "node, card, resource"
    assert labels["gas_plugin_registrations_total"] == "resource"

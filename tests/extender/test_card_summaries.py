"""The metrics of the cards: valid for Prometheus, complete, and written without delaying other work for long."""

from __future__ import annotations

import asyncio

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gas.extender.card_summaries import CARDS_A_PIECE, CardSummary, card_series

BOOKS = [
    CardSummary("n1", "card0", {"memory.max": 8_000_000_000, "i915": 1}, {"memory.max": 5_000_000_000}, 1),
    CardSummary("n1", "card10", {'odd"\\\n': 1}, {}, 0),
]


async def series(books: list[CardSummary]) -> str:
    return "".join([piece async for piece in card_series(lambda: books)])


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }


async def test_each_card_has_its_capacity_what_is_booked_and_its_pods() -> None:
    assert samples(await series(BOOKS)) == {
        ("gas_extender_card_capacity", "card0", "n1", "memory.max"): 8e9,
        ("gas_extender_card_capacity", "card0", "n1", "i915"): 1,
        ("gas_extender_card_capacity", "card10", "n1", 'odd"\\\n'): 1,
        ("gas_extender_card_booked", "card0", "n1", "memory.max"): 5e9,
        ("gas_extender_card_pods", "card0", "n1"): 1,
        ("gas_extender_card_pods", "card10", "n1"): 0,
    }


async def test_the_same_lines_are_valid_openmetrics() -> None:
    parsed = parse_openmetrics(await series(BOOKS) + "# EOF\n")  # type: ignore[no-untyped-call]
    families = {family.name: family for family in parsed}
    assert families["gas_extender_card_pods"].type == "gauge"
    assert len(families["gas_extender_card_capacity"].samples) == 3


async def test_other_work_gets_its_turn_while_many_cards_are_written() -> None:
    many = [CardSummary(f"n{number}", "card0", {"i915": 1}, {}, 0) for number in range(4 * CARDS_A_PIECE)]
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    text = await series(many)
    task.cancel()
    assert turns >= 3 * 4
    assert len(samples(text)) == 2 * len(many)

"""The node annotation ``gas-cards``: what it states comes back, and invalid records cost no other record."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gas.values.card_facts import CardFacts, MemorySource
from gas.values.card_records import (
    MOST_BYTES,
    MOST_RECORDS,
    CardRecord,
    card_name,
    card_records,
    cards_by_name,
    format_card_records,
    parse_card_records,
    recorded_facts,
)
from gas.values.cards import Card
from gas.values.errors import InvalidValue

FLEX = CardRecord(card=Card(0), model="Data Center GPU Flex 170", device_id="0x56c0", pci_address="0000:4d:00.0")

hexadecimal = st.text("0123456789abcdef", min_size=4, max_size=4)
words = st.text(string.ascii_letters + string.digits + "äé®()/-+.", min_size=1, max_size=12)
unique_addresses = st.integers(0, 2**16 - 1).map(lambda number: f"{number:04x}:4d:00.{number % 8}")


@st.composite
def records(draw: st.DrawFn) -> tuple[CardRecord, ...]:
    """Records of different cards, with different PCI addresses and UUIDs, in natural order."""
    cards = sorted(draw(st.sets(st.integers(0, 10**9 - 1), max_size=6)))
    addresses = draw(st.lists(unique_addresses, min_size=6, max_size=6, unique=True))
    return tuple(
        CardRecord(
            card=Card(card),
            driver=draw(st.sampled_from(["", "i915", "xe"])),
            device_id=draw(st.just("") | hexadecimal.map("0x".__add__)),
            model=draw(st.just("") | st.lists(words, min_size=1, max_size=4).map(" ".join)),
            pci_address=draw(st.sampled_from(["", address])),
            uuid=draw(st.sampled_from(["", f"uuid-{address.replace(':', '-')}"])),
            memory=draw(st.none() | st.integers(1, 2**50)),
            numa_node=draw(st.none() | st.integers(0, 1023)),
            tiles=draw(st.integers(1, 256)),
            render_node=draw(st.sampled_from(["", "renderD128"])),
            healthy=draw(st.booleans()),
            links=tuple(map(Card, sorted(draw(st.sets(st.integers(0, 9))) - {card}))),
            memory_source=draw(st.sampled_from(["", *MemorySource, "of-a-newer-plugin"])),
        )
        for card, address in zip(cards, addresses, strict=False)
    )


@given(records())
def test_facts_of_a_record_have_that_record(written: tuple[CardRecord, ...]) -> None:
    known = tuple(each for each in written if each.memory_source in set(MemorySource))
    assert card_records(map(recorded_facts, known)) == known


@given(records())
def test_parsing_is_the_inverse_of_formatting(written: tuple[CardRecord, ...]) -> None:
    assert parse_card_records(format_card_records(written)) == (written, ())


def test_fields_with_nothing_to_say_are_left_out() -> None:
    assert json.loads(format_card_records([FLEX, CardRecord(card=Card(1), healthy=False)])) == [
        {"card": 0, "id": "0x56c0", "model": "Data Center GPU Flex 170", "pci": "0000:4d:00.0"},
        {"card": 1, "healthy": False},
    ]


@pytest.mark.parametrize("source", MemorySource)
def test_a_record_states_the_source_of_the_memory(source: MemorySource) -> None:
    cards = [CardFacts(card=Card(0), driver="xe", device_id="0xe20b", memory_source=source)]
    (record,) = json.loads(format_card_records(card_records(cards)))
    assert record["memorySource"] == source.value


def test_a_reader_ignores_fields_that_it_does_not_know() -> None:
    assert parse_card_records('[{"card":0,"later":{"a":null}}]') == ((CardRecord(card=Card(0)),), ())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "expected a JSON list of cards, found ''"),
        ("card0=x", "expected a JSON list of cards"),
        ('{"card":0}', "expected a JSON list of cards"),
        ("[" * 100_000, "expected a JSON list of cards"),
        (f'[{{"x":{"[" * 100_000}', "expected a JSON list of cards"),
    ],
)
def test_text_that_is_not_a_list_is_one_sentence(text: str, sentence: str) -> None:
    found, (fault,) = parse_card_records(text)
    assert found == ()
    assert sentence in fault
    assert len(fault) < 200


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        pytest.param("7", "Expected `object`, got `int`", id="a-number"),
        pytest.param("{}", "missing required field `card`", id="without-card"),
        pytest.param('{"card":"card0"}', "expected a card number 0, 1 and so on, found 'card0'", id="card-as-text"),
        pytest.param('{"card":true}', "expected a card number 0, 1 and so on, found 'True'", id="card-as-boolean"),
        pytest.param('{"card":-1}', "expected a card number 0, 1 and so on, found -1", id="negative-card"),
        pytest.param('{"card":1000000000}', "expected a card number up to 999999999", id="large-card"),
        pytest.param(f'{{"card":1{"0" * 400}}}', "", id="enormous-card"),
        pytest.param('{"card":1,"render":"/dev/mem"}', "card1, render: expected a device node", id="no-render-node"),
        pytest.param('{"card":1,"pci":"4d:00.0"}', "card1, pci: expected a PCI address such as", id="short-address"),
        pytest.param('{"card":1,"pci":"0000:4D:00.0"}', "expected a PCI address", id="address-in-capitals"),
        pytest.param('{"card":1,"id":"56c0"}', "card1, id: expected a PCI device id such as 0x56c0", id="id"),
        pytest.param('{"card":1,"uuid":"a"}', "card1, uuid: expected 8 to 80 letters", id="short-uuid"),
        pytest.param('{"card":1,"driver":"../x"}', "card1, driver: expected a name", id="driver"),
        pytest.param('{"card":1,"model":"a,b"}', "card1, model: expected at most 80 printable", id="model-with-comma"),
        pytest.param('{"card":1,"model":"a\\u001bb"}', "found 'a\\x1bb'", id="model-with-control-character"),
        pytest.param(f'{{"card":1,"model":"{"a" * 81}"}}', "card1, model", id="long-model"),
        pytest.param('{"card":1,"memory":0}', "card1, memory: expected a whole number from 1 to", id="no-memory"),
        pytest.param('{"card":1,"memorySource":"a b"}', "card1, memorySource: expected a word such as", id="source"),
        pytest.param('{"card":1,"memory":1.5}', "Expected `int", id="fractional-memory"),
        pytest.param('{"card":1,"numa":-1}', "card1, numa: expected a whole number from 0 to 1023", id="numa"),
        pytest.param('{"card":1,"tiles":0}', "card1, tiles: expected a whole number from 1 to 256", id="no-tiles"),
        pytest.param('{"card":1,"healthy":"yes"}', "Expected `bool`, got `str`", id="health-as-text"),
    ],
)
def test_an_invalid_record_is_left_out_and_the_others_count(record: str, sentence: str) -> None:
    found, (fault,) = parse_card_records(f'[{{"card":7}},{record},{{"card":8}}]')
    assert [each.card for each in found] == [7, 8]
    assert fault.startswith("annotation gas-cards: record 2: ")
    assert sentence in fault
    assert fault.isprintable()
    assert len(fault) < 300


@pytest.mark.parametrize(
    ("links", "sentence"),
    [
        pytest.param("7", "Expected `array`, got `int`", id="a-number"),
        pytest.param("null", "Expected `array`, got `null`", id="null"),
        pytest.param('["card2"]', "expected a card number 0, 1 and so on, found 'card2'", id="card-as-text"),
        pytest.param("[1]", "card1, links: expected other cards in natural order, found card1", id="itself"),
        pytest.param("[3,2]", "expected other cards in natural order, found card3, card2", id="order"),
    ],
)
def test_of_a_record_with_invalid_links_the_rest_counts(links: str, sentence: str) -> None:
    (found,), (fault,) = parse_card_records(f'[{{"card":1,"id":"0x56c0","links":{links}}}]')
    assert found == CardRecord(card=Card(1), device_id="0x56c0")
    assert fault.startswith("annotation gas-cards: record 1: ")
    assert sentence in fault
    assert fault.endswith("; its links are ignored")


def test_a_record_with_links_and_another_fault_is_left_out() -> None:
    found, (fault,) = parse_card_records('[{"card":1,"id":"56c0","links":[2]}]')
    assert found == ()
    assert fault.endswith("; it is ignored")


def test_links_are_numbers_of_cards() -> None:
    text = format_card_records([CardRecord(card=Card(0), links=(Card(1), Card(10)))])
    assert json.loads(text) == [{"card": 0, "links": [1, 10]}]


def test_of_two_records_of_one_card_the_first_counts() -> None:
    found, faults = parse_card_records('[{"card":3,"numa":1},{"card":3,"numa":2}]')
    assert found == (CardRecord(card=Card(3), numa_node=1),)
    assert faults == ("annotation gas-cards: card3 is listed more than once; the first one is used",)


def test_of_two_cards_with_one_pci_address_only_the_first_has_it() -> None:
    found, faults = parse_card_records('[{"card":3,"pci":"0000:4d:00.0"},{"card":1,"pci":"0000:4d:00.0","numa":1}]')
    assert found == (CardRecord(card=Card(1), numa_node=1), CardRecord(card=Card(3), pci_address="0000:4d:00.0"))
    assert faults == (
        "annotation gas-cards: card3 and card1 have the same PCI address 0000:4d:00.0; only card3 counts",
    )


def test_of_two_cards_with_one_uuid_only_the_first_has_it() -> None:
    found, (fault,) = parse_card_records('[{"card":0,"uuid":"abcdefgh"},{"card":1,"uuid":"ABCDEFGH"}]')
    assert [each.uuid for each in found] == ["abcdefgh", ""]
    assert "card0 and card1 have the same UUID ABCDEFGH" in fault


def test_very_many_faults_and_records_are_a_few_sentences() -> None:
    found, faults = parse_card_records(json.dumps([{"card": -1}] * 100 + [{"card": 1}]))
    assert [each.card for each in found] == [1]
    assert len(faults) == 6
    assert faults[-1] == "annotation gas-cards: 95 more records are invalid"
    found, faults = parse_card_records(json.dumps([{"card": number} for number in range(MOST_RECORDS + 5)]))
    assert len(found) == MOST_RECORDS
    assert faults == (
        f"annotation gas-cards: expected at most {MOST_RECORDS} cards, found 1029; the others are ignored",
    )
    found, faults = parse_card_records(json.dumps([{}] * (MOST_RECORDS + 5)))
    assert (found, faults[-1]) == ((), f"annotation gas-cards: {MOST_RECORDS - 4} more records are invalid")
    too_long = f"[{' ' * MOST_BYTES}]"
    sentence = f"annotation gas-cards: expected at most {MOST_BYTES} characters, found {len(too_long)}; it is ignored"
    assert parse_card_records(too_long) == ((), (sentence,))


@given(st.text() | st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists))
def test_no_text_is_an_error(value: Any) -> None:
    for text in (str(value), json.dumps(value), json.dumps([{"card": value, "pci": value}])):
        found, faults = parse_card_records(text)
        assert all(fault.isprintable() for fault in faults)
        assert parse_card_records(format_card_records(found)) == (found, ())


def test_the_largest_node_fits_into_the_annotations_of_an_object() -> None:
    full = CardRecord(
        card=Card(0), driver="i915", device_id="0x56c0", model="Data Center GPU Flex 170", memory=2**34, numa_node=1
    )
    many = [replace(full, card=Card(card), pci_address=f"0000:{card:02x}:00.0") for card in range(256)]
    assert len(format_card_records(many)) < MOST_BYTES / 2


@pytest.mark.parametrize(
    ("text", "name"),
    [
        pytest.param("card3", Card(3), id="card"),
        pytest.param(" card3 ", Card(3), id="blanks"),
        pytest.param("card03", "card03", id="not-a-card"),
        pytest.param("0000:4D:00.0", "0000:4d:00.0", id="address-in-capitals"),
        pytest.param("4d:00.0", "0000:4d:00.0", id="address-without-domain"),
        pytest.param("  Data  Center GPU FLEX 170 ", "data center gpu flex 170", id="model"),
        pytest.param("0x56C0", "0x56c0", id="device-id"),
    ],
)
def test_a_list_names_cards_by_number_address_or_model(text: str, name: Card | str) -> None:
    assert card_name(text) == name
    assert type(card_name(text)) is type(name)


def test_a_model_names_all_its_cards() -> None:
    other = CardRecord(card=Card(1), model="Data Center GPU FLEX 170", pci_address="0000:4e:00.0", uuid="abcdefgh")
    assert cards_by_name([FLEX, other]) == {
        "0000:4d:00.0": {Card(0)},
        "0000:4e:00.0": {Card(1)},
        "0x56c0": {Card(0)},
        "data center gpu flex 170": {Card(0), Card(1)},
        "data-center-gpu-flex-170": {Card(0), Card(1)},
    }


def facts(number: int, **fields: Any) -> CardFacts:
    return CardFacts(card=Card(number), driver="i915", device_id="0x56c0", **fields)


def test_a_uuid_that_two_cards_report_is_not_written() -> None:
    gpus = [facts(0, uuid="same-uuid"), facts(1, uuid="same-uuid"), facts(2, uuid="another-uuid")]
    assert [record.uuid for record in card_records(gpus)] == ["", "", "another-uuid"]


def test_a_card_that_no_record_can_describe_still_has_one() -> None:
    (record,) = card_records([facts(4, tiles=1000, healthy=False)])
    assert record == CardRecord(card=Card(4), healthy=False)


def test_a_record_with_an_impossible_value_cannot_exist() -> None:
    with pytest.raises(InvalidValue, match="card0, pci: expected a PCI address such as"):
        CardRecord(card=Card(0), pci_address="x")

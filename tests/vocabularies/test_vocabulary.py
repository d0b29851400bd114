"""Several vocabularies asked as one."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.decision.annotations import read_choice, read_receipt
from gas.objects.stored import Node, Pod
from gas.placement.choice import Choice, ContainerChoice
from gas.placement.inventory import UNUSED, Inventory, Link, Partition
from gas.placement.need import PodNeed
from gas.placement.order import BestFit, CardOrder, LeastUsed, UsedFirst
from gas.placement.place import place
from gas.values.card_records import ANNOTATION, card_records, format_card_records, parse_card_records
from gas.values.cards import Card, Tile
from gas.values.errors import InvalidEntry
from gas.vocabularies.combined import Vocabularies, merged_facts
from gas.vocabularies.intel.vocabulary import INTEL
from gas.vocabularies.known import DEFAULT, KNOWN
from gas.vocabularies.protocol import BadNeed, DeviceOptions, NeedOptions, NodeFacts, Vocabulary
from gas.vocabularies.selection import KNOWN_NAMES, parse_vocabularies
from tests.builders import container, node_json, pod
from tests.made_up import CARD, CARDS, MADE_UP, SLICE
from tests.other_words import GPU_COUNT, asking, decoded, sharing, stating
from tests.plugin.gpus import gpu, nvidia_gpu

BOTH = Vocabularies([INTEL, MADE_UP])
ONE_I915 = container(i915=1, millicores=600)
NO_OPTIONS = NeedOptions()
MANY_RESOURCES = {f"gpu.intel.com/{number:064}": 1 for number in range(20_000)}


def slices(count: int, name: str = "main") -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {SLICE: str(count)}}}


def node(labels: Mapping[str, str] | None = None, **fields: Any) -> Node:
    return msgspec.convert(node_json(labels=labels, **fields), Node)


def chosen(asking: Pod, at: Node, vocabularies: Vocabularies = BOTH) -> Choice:
    choice = place(vocabularies.need(asking, NO_OPTIONS), vocabularies.facts(at).inventory, UNUSED)
    assert isinstance(choice, Choice), choice
    return choice


class TestPods:
    def test_each_pod_is_read_in_the_vocabulary_that_it_speaks(self) -> None:
        assert BOTH.need(pod(ONE_I915), NO_OPTIONS).containers[0].per_card == (("i915", 1), ("millicores", 600))
        assert BOTH.need(pod(slices(3)), NO_OPTIONS).containers[0].per_card == (("millicores", 300), ("slice", 3))

    def test_a_vocabulary_that_is_switched_off_is_not_spoken(self) -> None:
        assert not DEFAULT.is_gpu_pod(pod(slices(3)))
        assert BOTH.is_gpu_pod(pod(slices(3)))

    def test_the_latest_needs_are_remembered(self) -> None:
        vocabularies = Vocabularies([INTEL], most_needs=2)
        one, two, three = (pod(container(i915=count)) for count in (1, 2, 3))
        first = vocabularies.need(one, NO_OPTIONS)
        vocabularies.need(two, NO_OPTIONS)
        assert vocabularies.need(one, NO_OPTIONS) is first
        vocabularies.need(two, NO_OPTIONS)
        vocabularies.need(three, NO_OPTIONS)
        assert vocabularies.need(one, NO_OPTIONS) is not first
        assert vocabularies.need(one, NO_OPTIONS) == first

    @pytest.mark.parametrize(("size", "is_remembered"), [(20_000, True), (40_000, False)])
    def test_the_need_of_a_large_pod_is_not_remembered(self, size: int, *, is_remembered: bool) -> None:
        vocabularies = Vocabularies([INTEL])
        for read in (partial(vocabularies.need, options=NO_OPTIONS), vocabularies.booked_need):
            large = pod(container("a" * size, i915=1))
            assert (read(large) is read(large)) == is_remembered
            assert read(large) == read(large)

    @pytest.mark.parametrize(
        "huge",
        [
            pytest.param(
                pod(ONE_I915, annotations={f"example.com/{number:064}": "" for number in range(20_000)}),
                id="annotations",
            ),
            pytest.param(pod(ONE_I915, labels={"example.com/note": "x" * 2_000_000}), id="a-label"),
            pytest.param(pod({"name": "main", "resources": {"requests": MANY_RESOURCES}}), id="resources"),
        ],
    )
    def test_a_pod_larger_than_any_real_one_is_not_copied(self, huge: Pod) -> None:
        vocabularies = Vocabularies([INTEL])
        tracemalloc.start()
        try:
            with contextlib.suppress(BadNeed):
                vocabularies.need(huge, NO_OPTIONS)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 100_000

    @pytest.mark.parametrize("first", ["cpu", "i915"])
    def test_a_container_with_very_many_resources_is_refused(self, first: str) -> None:
        most: dict[str, Any] = {f"r{number:02}": 1 for number in range(31)}
        others = {"requests": {"cpu": "1", **dict.fromkeys(map(str, range(32)), "1")}}
        assert BOTH.need(pod(container(i915=1, **most)), NO_OPTIONS).wants_cards
        plain = {"name": "plain", "resources": others}
        too_many = (ONE_I915, plain) if first == "cpu" else (container(i915=1, rest=1, **most),)
        name = "plain" if first == "cpu" else "main"
        with pytest.raises(BadNeed) as refused:
            BOTH.need(pod(*too_many), NO_OPTIONS)
        sentence = f"container '{name}': expected requests of at most 32 resources, found 33; remove some"
        assert str(refused.value) == sentence
        assert BOTH.booked_need(pod(*too_many)).wants_cards  # it is bound, so its cards are counted
        assert not BOTH.need(pod(plain), NO_OPTIONS).wants_cards

    def test_a_very_long_wish_is_refused(self) -> None:
        longest = "card0," * 5461
        asking = pod(ONE_I915, annotations={"gas-allow": longest, "note": "x" * 50_000})
        assert BOTH.need(asking, NeedOptions(allowlist=True)).allowed == frozenset({Card(0)})
        with pytest.raises(BadNeed) as refused:
            BOTH.need(pod(ONE_I915, annotations={"gas-allow": longest + "card"}), NO_OPTIONS)
        assert str(refused.value) == "gas-allow: expected at most 32768 characters, found 32770; shorten it"

    def test_a_pod_with_very_many_containers_with_cards_is_refused(self) -> None:
        def asking(count: int) -> Pod:
            apps = [container(f"a{number}", i915=1) for number in range(count - 20)]
            init = [container(f"i{number}", always=number % 2 > 0, i915=1) for number in range(20)]
            return pod(*apps, *(container(f"p{number}") for number in range(100)), init=tuple(init))

        assert BOTH.need(asking(64), NO_OPTIONS).wants_cards
        with pytest.raises(BadNeed) as refused:
            BOTH.need(asking(65), NO_OPTIONS)
        sentence = "the pod has 65 containers that ask for cards, expected at most 64; use several pods"
        assert str(refused.value) == sentence

    def test_a_pod_without_gpus_needs_no_card(self) -> None:
        assert not BOTH.is_gpu_pod(pod(container()))
        assert not BOTH.need(pod(container()), NO_OPTIONS).wants_cards
        assert not BOTH.booked_need(pod(container())).wants_cards

    def test_a_pod_in_two_vocabularies_is_refused_with_both_names(self) -> None:
        with pytest.raises(BadNeed, match="in the words of intel and of made-up; use only one"):
            BOTH.need(pod(ONE_I915, slices(1, "second")), NO_OPTIONS)

    def test_a_bound_pod_in_two_vocabularies_is_booked_in_the_first(self) -> None:
        assert BOTH.booked_need(pod(ONE_I915, slices(1, "second"))).count_resources == {"i915", "xe"}


class TestChoices:
    def test_both_the_shared_and_the_own_annotations_are_written(self) -> None:
        asking = pod(slices(3))
        choice = chosen(asking, node({CARDS: "0.1"}))
        written = BOTH.write_choice(asking, BOTH.need(asking, NO_OPTIONS), choice, 17, None)
        assert written == {"gas-ts": "17", "gas-container-cards": "card0", CARD: "0"}

    def test_an_outdated_annotation_of_either_is_overwritten(self) -> None:
        asking = pod(ONE_I915, annotations={CARD: "7", "gas-container-tiles": "card0:gt0", "mine": "stays"})
        written = BOTH.write_choice(asking, BOTH.need(asking, NO_OPTIONS), chosen(asking, node()), 17, None)
        assert written == {"gas-ts": "17", "gas-container-cards": "card0", CARD: "", "gas-container-tiles": ""}

    def test_every_outdated_annotation_of_a_decision_or_receipt_is_emptied(self) -> None:
        old = {
            "gas-ts": "1",
            "gas-container-cards": "card9",
            "gas-container-tiles": "card9:gt0",
            "gas-init-container-cards": "card9",
            "gas-init-container-tiles": "card9:gt0",
            "gas-allocated-cards": "card9",
            "gas-allocated-init-cards": "",
            "gas-allow": "card9",
        }
        asking = pod(ONE_I915, annotations=old)
        need = DEFAULT.need(asking, NO_OPTIONS)
        written = DEFAULT.write_choice(asking, need, chosen(asking, node()), 17, None)
        assert written == {
            "gas-ts": "17",
            "gas-container-cards": "card0",
            "gas-container-tiles": "",
            "gas-init-container-cards": "",
            "gas-init-container-tiles": "",
            "gas-allocated-cards": "",
        }
        bound = pod(ONE_I915, annotations=old | written)
        assert read_choice(bound, need) == Choice((ContainerChoice((Card(0),)),))
        assert read_receipt(bound, need) is None

    def test_a_pod_without_cards_gets_no_annotations(self) -> None:
        plain = pod(container())
        assert BOTH.write_choice(plain, BOTH.need(plain, NO_OPTIONS), Choice(()), 17, None) == {}

    def test_what_we_wrote_is_read_before_what_the_old_system_wrote(self) -> None:
        def cards_of(annotations: Mapping[str, str]) -> list[Card]:
            bound = pod(slices(3), annotations=annotations)
            vocabulary = BOTH.vocabulary_of(bound)
            assert vocabulary is not None
            choice = vocabulary.read_choice(bound, BOTH.booked_need(bound), None)
            return [card for each in choice.containers for card in each.cards] if choice else []

        assert cards_of({CARD: "1"}) == [Card(1)]
        assert cards_of({CARD: "1", "gas-container-cards": "card0"}) == [Card(0)]
        assert cards_of({}) == []


class TestNodes:
    def test_a_card_has_what_any_vocabulary_says(self) -> None:
        facts = BOTH.facts(node({CARDS: "0.1"}))
        card = {"i915": 1, "millicores": 1000, "memory.max": 8_000_000_000, "slice": 10}
        assert facts.inventory.capacity == {Card(0): card, Card(1): card}
        assert facts.problems == ()

    def test_where_two_disagree_the_smaller_amount_counts_with_one_problem(self) -> None:
        facts = BOTH.facts(node({CARDS: "0.1"}, cards=2, i915=2, millicores=1600))
        assert facts.inventory.capacity[Card(0)]["millicores"] == 800
        assert facts.problems == tuple(
            f"card{n}: one vocabulary says 1000 of millicores, another 800; the smaller amount counts" for n in (0, 1)
        )

    @given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=3), named=st.lists(st.integers(0, 9), unique=True))
    def test_counted_cards_are_those_that_are_named_in_their_order(self, counts: list[int], named: list[int]) -> None:
        inventories = [
            Inventory(capacity={Card(n): {f"r{at}": n + 1} for n in range(count)}) for at, count in enumerate(counts)
        ]
        facts = [NodeFacts(inventory=each, counted=True) for each in inventories]
        facts.append(NodeFacts(inventory=Inventory(capacity={Card(n): {"own": 1} for n in sorted(named)})))
        merged = merged_facts(facts)
        cards = sorted(named) or range(max(counts))
        assert list(merged.inventory.cards) == list(cards)
        for position, card in enumerate(cards):
            expected = {f"r{at}": position + 1 for at, count in enumerate(counts) if position < count}
            assert merged.inventory.capacity[Card(card)] == expected | ({"own": 1} if named else {})
        wrong = [count for count in counts if named and count != len(named)]
        assert len(set(merged.problems)) == len(set(wrong))
        sentence = f"one vocabulary names {len(named)} card(s), another counts "
        assert all(problem.startswith(sentence) for problem in merged.problems)

    @pytest.mark.parametrize("recorded", [True, False])
    @pytest.mark.parametrize("alone", [*KNOWN, MADE_UP], ids=lambda vocabulary: vocabulary.name)
    def test_facts_change_only_with_the_source(self, alone: Vocabulary, *, recorded: bool) -> None:
        """Law: so it is when a node lacks any of what vocabularies read of it; the source has nothing else."""
        vocabulary = Vocabularies([alone])
        known = {"driver": "nvidia", "memory": 2**34, "numa": 0, "board": 1, "tiles": 2, "millicores": 500}
        records = [
            {"card": 0, "model": "x", "uuid": "abcdefgh", "pci": "0000:10:00.0", "links": [1], **known},
            {"card": 1, "memorySource": "unknown", "healthy": False, **known},
        ]
        intel: dict[str, Any] = dict.fromkeys(("i915", "xe", "tiles", "memory_max", "millicores"), 4)
        full = node_json(annotations={ANNOTATION: msgspec.json.encode(records).decode()} if recorded else {}, **intel)
        amounts = dict.fromkeys((*Vocabularies(KNOWN).managed_resources, GPU_COUNT), "200") | full["status"]["capacity"]
        full["status"] = {"allocatable": amounts, "capacity": amounts}
        full["metadata"]["annotations"] |= {
            "gas-card-capacity": "card0=millicores:5",
            "scheduling.koordinator.sh/gpu-partitions": '{"1":[{"minors":[0]}]}',
            "hami.io/node-nvidia-register": '[{"id":"abcdefgh","count":7,"devmem":10,"health":true}]',
            "hami.io/device-cordon": "abcdefgh",
        }
        full["metadata"]["labels"] |= {
            CARDS: "0.1",
            "zone": "a",
            "gpu.intel.com/numa-gpu-map": "0-0_1-1",
            "node.koordinator.sh/gpu-partition-policy": "Honor",
            "telemetry.aware.scheduling.p/gas-deschedule-card0": "x",
        }
        text, changing = msgspec.json.encode(full).decode(), 0
        for part in (*full["metadata"].values(), amounts, *(records if recorded else ())):
            for name in part if isinstance(part, dict) else ():
                one, other = (msgspec.json.decode(each, type=Node) for each in (text, text.replace(name, "left-out")))
                is_same = vocabulary.source(one) == vocabulary.source(other)
                changing += vocabulary.facts(one) != vocabulary.facts(other)
                assert not is_same or vocabulary.facts(one) == vocabulary.facts(other), name
                assert is_same or name != "zone"
        assert changing


CARD_NAMES = st.integers(0, 2).map(Card)
TILES = st.integers(0, 1)


def inventory(
    capacity: dict[Card, dict[str, int]],
    closed_tiles: dict[Card, frozenset[int]],
    preferred_tiles: dict[Card, tuple[int, ...]],
    links: tuple[Link, ...],
    groups: tuple[tuple[Card, ...], ...] | None,
    **rest: Any,
) -> Inventory:
    """Return an inventory with those of the tiles, links and groups that its cards have."""

    def existing(card: Card, tiles: Iterable[int]) -> Iterator[int]:
        return (tile for tile in tiles if tile < capacity[card].get("tiles", 0))

    near = groups and tuple(group for group in groups if capacity.keys() >= set(group))
    return Inventory(
        capacity=capacity,
        closed_tiles={
            card: frozenset(existing(card, tiles)) for card, tiles in closed_tiles.items() if card in capacity
        },
        preferred_tiles={
            card: tuple(existing(card, tiles)) for card, tiles in preferred_tiles.items() if card in capacity
        },
        links=tuple(link for link in links if capacity.keys() >= {end.card for end in link}),
        numa_groups=near,
        boards=near or (),
        **rest,
    )


INVENTORIES = st.builds(
    inventory,
    capacity=st.dictionaries(
        CARD_NAMES, st.dictionaries(st.sampled_from(["millicores", "memory.max", "tiles"]), st.integers(1, 3))
    ).map(lambda capacity: dict(sorted(capacity.items()))),
    disabled=st.frozensets(CARD_NAMES),
    closed_tiles=st.dictionaries(CARD_NAMES, st.frozensets(TILES)),
    preferred_tiles=st.dictionaries(CARD_NAMES, st.permutations((0, 1)).map(tuple)),
    preferred_card=st.none() | CARD_NAMES,
    links=st.just((Link(Tile(Card(0), 0), Tile(Card(1), 0)),)) | st.just(()),
    groups=st.sampled_from((None, ((Card(0), Card(1)), (Card(2),)), ((Card(0),), (Card(1),)))),
    partitions=st.lists(st.frozensets(CARD_NAMES).map(Partition), max_size=2).map(tuple),
    partitioned=st.booleans(),
)
FACTS = st.builds(
    NodeFacts,
    inventory=INVENTORIES,
    deschedule_cards=st.frozensets(CARD_NAMES),
    deschedule_tiles=st.frozensets(st.builds(Tile, CARD_NAMES, TILES)),
    closed_by=st.dictionaries(CARD_NAMES, st.sampled_from((("label a",), ("label b", "label c")))),
    problems=st.just(()) | st.just(("label x is wrong",)),
)


class TestRecordsOfCards:
    """The annotation ``gas-cards``, which belongs to no vocabulary."""

    def test_every_vocabulary_writes_the_same_records(self) -> None:
        cards = [gpu(0, model="Arc A770"), gpu(1)]
        written = {
            vocabularies.describe(cards, DeviceOptions()).annotations[ANNOTATION]
            for vocabularies in (DEFAULT, Vocabularies([MADE_UP]), BOTH)
        }
        (text,) = written
        assert parse_card_records(text) == (card_records(cards), ())
        assert DEFAULT.owns_annotation(ANNOTATION)

    def test_a_node_without_cards_has_no_records(self) -> None:
        assert ANNOTATION not in BOTH.describe([], DeviceOptions()).annotations

    def test_records_that_are_too_long_for_an_annotation_are_left_out(self) -> None:
        cards = [gpu(number, model="a long name " * 6 + "x", pci_address="") for number in range(900)]
        description = DEFAULT.describe(cards, DeviceOptions())
        assert ANNOTATION not in description.annotations
        assert description.labels

    def test_nodes_with_the_same_names_of_cards_are_alike_whatever_else_the_records_state(self) -> None:
        records = [f'[{{"card":0,"model":"A","uuid":"abcdefg{each}","memory":{each}}}]' for each in (1, 2)]
        one, other = (node(annotations={ANNOTATION: text}) for text in records)
        assert BOTH.source(one) == BOTH.source(other)
        assert BOTH.facts(one) == BOTH.facts(other)
        assert BOTH.facts(one).inventory.other_names == {"a": {Card(0)}}

    @given(st.lists(st.sampled_from(["A", "B"]), max_size=4), st.lists(st.sampled_from(["A", "B"]), max_size=4))
    def test_equal_sources_have_equal_facts(self, one: list[str], other: list[str]) -> None:
        first, second = (
            node(cards=2, annotations={ANNOTATION: msgspec.json.encode(written).decode()})
            for models in (one, other)
            for written in [[{"card": card, "model": model} for card, model in enumerate(models)]]
        )
        if BOTH.source(first) == BOTH.source(second):
            assert BOTH.facts(first) == BOTH.facts(second)
        assert BOTH.facts(first).inventory.resolve(["a"]) == {
            card for card, model in enumerate(one) if model == "A" and card < 2
        }


class TestMergedFacts:
    """Laws: never more of a resource than every vocabulary that names it allows, and no prohibition is lost."""

    @given(st.lists(FACTS, max_size=3))
    def test_laws(self, facts: list[NodeFacts]) -> None:
        merged = merged_facts(facts)
        inventories = [each.inventory for each in facts]
        for card, amounts in merged.inventory.capacity.items():
            stated = [inventory.capacity[card] for inventory in inventories if card in inventory.capacity]
            for name, amount in amounts.items():
                assert amount == min(each[name] for each in stated if name in each)
            closing = tuple(text for each in facts for text in each.closed_by.get(card, ()))
            assert merged.closed_by.get(card, ()) == closing
        assert set(merged.inventory.cards) == {card for inventory in inventories for card in inventory.cards}
        assert list(merged.inventory.cards) == sorted(merged.inventory.cards)
        for each in facts:
            assert each.inventory.disabled <= merged.inventory.disabled
            assert each.deschedule_cards <= merged.deschedule_cards
            assert each.deschedule_tiles <= merged.deschedule_tiles
            assert each.inventory.partitioned <= merged.inventory.partitioned
            assert set(each.problems) <= set(merged.problems)
            for card, tiles in each.inventory.closed_tiles.items():
                existing = range(merged.inventory.capacity[card].get("tiles", 0))
                assert tiles & frozenset(existing) <= merged.inventory.closed_tiles[card]
        for card, order in merged.inventory.preferred_tiles.items():
            first = next(each.preferred_tiles[card] for each in inventories if card in each.preferred_tiles)
            assert order == tuple(tile for tile in first if tile < merged.inventory.capacity[card].get("tiles", 0))
        for name in ("preferred_card", "numa_groups"):
            stated_first = next((found for each in inventories if (found := getattr(each, name)) is not None), None)
            assert getattr(merged.inventory, name) == stated_first
        assert merged.inventory.boards == next((each.boards for each in inventories if each.boards), ())
        assert merged.inventory.partitions == tuple(one for each in inventories for one in each.partitions)

    @given(FACTS)
    def test_one_vocabulary_is_not_changed(self, facts: NodeFacts) -> None:
        assert merged_facts([facts]) is facts


def test_the_known_vocabularies_have_different_names_and_annotations() -> None:
    assert len({each.name for each in KNOWN}) == len(KNOWN)
    owned = [name for each in KNOWN for name in each.choice_annotations]
    assert len(set(owned)) == len(owned)


@pytest.mark.parametrize(
    ("asked", "order"),
    [
        pytest.param(ONE_I915, LeastUsed("memory.max"), id="intel"),
        pytest.param(asking(nvidia=1), LeastUsed("memory.max"), id="vendor"),
        pytest.param(asking(gpu_mem=1), BestFit("memory.max"), id="aliyun"),
        pytest.param(sharing(memory=5, shared=1), LeastUsed("memory.max"), id="koordinator"),
    ],
)
def test_the_order_of_the_extender_is_for_vocabularies_without_one_and_that_of_the_pod_counts(
    asked: dict[str, Any], order: CardOrder
) -> None:
    options = NeedOptions(card_order=LeastUsed("memory.max"))
    assert Vocabularies(KNOWN).need(pod(asked), options).order == order
    chosen = pod(asked, annotations={"gas-card-order": "used-first"})
    assert Vocabularies(KNOWN).need(chosen, options).order == UsedFirst()


def test_vocabularies_are_selected_by_name() -> None:
    assert parse_vocabularies("intel") == (INTEL,)
    assert parse_vocabularies(",".join(each.name for each in KNOWN)) == KNOWN
    assert parse_vocabularies("intel") == tuple(DEFAULT)
    assert parse_vocabularies("vendor,intel,vendor") == parse_vocabularies("intel,vendor"), "each once, in one order"


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("", ""),
        ("inlet", "inlet"),
        ("intel,", ""),
        ("intel,inlet", "inlet"),
        ("Intel", "Intel"),
    ],
)
def test_unknown_and_missing_names_are_refused_with_the_known_ones(text: str, entry: str) -> None:
    with pytest.raises(InvalidEntry, match=rf"^vocabularies .*, of these: {KNOWN_NAMES}$") as refused:
        parse_vocabularies(text)
    assert refused.value.entry == entry


REMEMBERING = Vocabularies([INTEL, MADE_UP])
"""Has read the needs of all examples so far."""

SOME_CONTAINERS = st.sampled_from(
    (
        container(i915=1, millicores=600),
        container(i915=2, millicores=600),
        container(i915=2, millicores="600"),
        container(i915=1, millicores="many"),
        container("other", i915=1),
        container("other", always=True, i915=1),
        container("none"),
        slices(1),
    )
)
SOME_ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        "gas-card-order": st.sampled_from(("used-first", "least-used=millicores", "unknown")),
        "gas-same-gpu": st.just("main,other"),
        "gas-allow": st.sampled_from(("card0", "card1")),
        "gas-card-affinity": st.sampled_from(("a", "b")),
        "gas-ts": st.sampled_from(("1", "2")),
    },
)


def result_of(read: Callable[[], PodNeed]) -> PodNeed | str:
    try:
        return read()
    except BadNeed as bad:
        return str(bad)


@given(
    st.lists(SOME_CONTAINERS, max_size=3),
    st.lists(SOME_CONTAINERS, max_size=1),
    SOME_ANNOTATIONS,
    st.sampled_from(({}, {"app": "x"})),
)
def test_a_remembered_need_is_the_one_that_would_be_read(
    containers: list[dict[str, Any]],
    init: list[dict[str, Any]],
    annotations: dict[str, str],
    labels: dict[str, str],
) -> None:
    asking = pod(*containers, init=tuple(init), annotations=annotations, labels=labels)
    for options in (NO_OPTIONS, NeedOptions(allowlist=True)):
        fresh = Vocabularies([INTEL, MADE_UP])
        read = partial(fresh.need, asking, options)
        assert result_of(partial(REMEMBERING.need, asking, options)) == result_of(read)
    fresh = Vocabularies([INTEL, MADE_UP])
    assert result_of(lambda: REMEMBERING.booked_need(asking)) == result_of(lambda: fresh.booked_need(asking))


def test_pods_with_the_same_content_share_one_need() -> None:
    first, second = (pod(ONE_I915, name=name, annotations={"gas-ts": name}) for name in ("1", "2"))
    assert BOTH.booked_need(first) is BOTH.booked_need(second)
    first, second = (pod(ONE_I915, name=name) for name in ("1", "2"))
    assert BOTH.need(first, NO_OPTIONS) is BOTH.need(second, NO_OPTIONS)


class TestRecordedCloseness:
    """Cards of which no vocabulary says how close they are have what their records say."""

    def recorded(self, *cards: Any, labels: Mapping[str, str] | None = None, count: int = 0) -> Inventory:
        vocabularies = Vocabularies(parse_vocabularies("intel,vendor"))
        return vocabularies.facts(self.node(*cards, labels=labels, nvidia=count or len(cards), i915=2)).inventory

    def node(self, *cards: Any, **stated: Any) -> Node:
        return decoded(stating(annotations={ANNOTATION: format_card_records(card_records(cards))}, **stated))

    def test_links_boards_and_numa_nodes_come_from_the_records(self) -> None:
        inventory = self.recorded(
            nvidia_gpu(0, numa_node=0, board=0, links=(Card(2), Card(2))),
            nvidia_gpu(1, numa_node=1, board=0),
            nvidia_gpu(2, numa_node=0),
            nvidia_gpu(3),
        )
        close = [inventory.closeness(card) for card in inventory.cards]
        assert [[of_card[other] for other in inventory.cards] for of_card in close] == [
            [0, 2, 4, 0],
            [2, 0, 0, 0],
            [4, 0, 0, 0],
            [0, 0, 0, 0],
        ]
        assert inventory.numa_groups == ((Card(0), Card(2)), (Card(1),))

    def test_labels_count_before_records_and_cards_of_one_numa_node_join(self) -> None:
        labels = {"gpu.intel.com/gpu-numbers": "0.1", "gpu.intel.com/numa-gpu-map": "0-0_1-1"}
        inventory = self.recorded(
            gpu(0, numa_node=0), gpu(1, numa_node=1), nvidia_gpu(1000, numa_node=0), labels=labels, count=1
        )
        assert inventory.numa_groups == ((Card(0), Card(1000)), (Card(1),))

    def test_a_node_whose_records_say_nothing_has_no_numa_groups(self) -> None:
        assert self.recorded(nvidia_gpu(0), nvidia_gpu(1)).numa_groups is None

    @pytest.mark.parametrize("fields", [{"numa_node": 1}, {"board": 1}, {"links": (Card(1),)}])
    def test_nodes_of_unlike_closeness_are_not_alike(self, fields: dict[str, Any]) -> None:
        vocabularies = Vocabularies(parse_vocabularies("vendor"))
        sources = []
        for card in (nvidia_gpu(0), nvidia_gpu(0, **fields)):
            sources.append(vocabularies.source(self.node(card, nvidia_gpu(1), nvidia=2)))
        assert sources[0] != sources[1]

    def test_links_in_records_are_not_written_again_as_those_of_other_programs(self) -> None:
        stated = self.node(nvidia_gpu(0, links=(Card(1),)), nvidia_gpu(1), nvidia=2)
        vocabularies = Vocabularies(parse_vocabularies("vendor"))
        assert vocabularies.facts(stated).inventory.links == (Link(Tile(Card(0), 0), Tile(Card(1), 0)),)
        assert vocabularies.links(stated) == ()


def test_intels_words_are_about_intels_cards_only() -> None:
    described = DEFAULT.describe([gpu(0), nvidia_gpu(1000)], DeviceOptions(shared_dev_num=2))
    alone = DEFAULT.describe([gpu(0)], DeviceOptions(shared_dev_num=2))
    assert (described.labels, described.resources) == (alone.labels, alone.resources)
    assert described.annotations.keys() == {ANNOTATION}
    assert not DEFAULT.describe([nvidia_gpu(0)], DeviceOptions()).labels
    assert not DEFAULT.ids_per_card(nvidia_gpu(0), DeviceOptions())


def test_a_whole_card_of_nvidias_is_one_device() -> None:
    vendor = Vocabularies(parse_vocabularies("vendor"))
    assert vendor.ids_per_card(nvidia_gpu(0), DeviceOptions(shared_dev_num=10)) == {"nvidia.com/gpu": 1}
    assert vendor.ids_per_card(gpu(0), DeviceOptions(shared_dev_num=10)) == {}

"""Receipts, and the extender's ledger that follows them."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.decision.annotations import read_receipt
from gas.objects.stored import Pod
from gas.placement.choice import Choice, ContainerChoice, footprint
from gas.placement.need import Role
from gas.plugin.kubelet.pod_resources import ContainerIds
from gas.plugin.matching.gpu_pods import GpuPod, gpu_pod
from gas.plugin.receipts.receipts import Receipt, ReceiptKind, receipt
from gas.values.cards import Card
from gas.vocabularies.intel.need import read_booked_need
from gas.vocabularies.known import DEFAULT
from gas.vocabularies.pod_parts import need_facts
from tests.builders import container
from tests.plugin.pods_for_plugin import I915, XE, decided, ids, node_pod, seen

ONE = container("c", i915=1)
TWO = container("d", i915=2)
INIT = container("i", i915=1)
SIDE = container("s", i915=1, always=True)
NO_CARDS = container("n"), container("m")


FOO = {"resources": {"requests": {"gpu.intel.com/i915": "1", "gpu.intel.com/foo": "20E"}}}
"""Kubelet starts such a pod, if it names its node itself, where the node has no ``foo``."""


def listed(**containers: str) -> ContainerIds:
    """Return a pod's entry in kubelet's list: ``listed(c="card0-0,card1-0")``."""
    return {name: {I915: ids(*texts.split(","))} if texts else {} for name, texts in containers.items()}


def cards(*numbers: int) -> frozenset[Card]:
    return frozenset(map(Card, numbers))


TRUE = [
    pytest.param(seen(ONE, started=True, annotations=decided("card0")), listed(c="card0-3"), {}, id="as-decided"),
    pytest.param(
        seen(TWO, started=True, annotations=decided("card3,card1")),
        listed(d="card1-0,card3-0"),
        {},
        id="the-order-of-ids-means-nothing",
    ),
    pytest.param(
        seen(ONE, started=True, annotations=decided("card0") | {"gas-allocated-cards": "card1"}),
        listed(c="card1-0"),
        {},
        id="a-receipt-that-is-there-already",
    ),
    pytest.param(
        seen(ONE, init=(INIT,), started=True, annotations=decided("card0", init="card0")),
        listed(c="card0-0"),
        {},
        id="an-init-container-without-known-cards-has-what-was-decided",
    ),
    pytest.param(
        seen(ONE, annotations=decided("card0")), listed(c="card1-0"), {}, id="kubelet-has-no-status-written-yet"
    ),
    pytest.param(
        seen(ONE, started=True, annotations=decided("card0")), {}, {}, id="kubelet-lists-nothing-after-its-start"
    ),
    pytest.param(seen(ONE, started=True, annotations=decided("card0")), listed(c=""), {}, id="no-devices-yet"),
    pytest.param(
        seen(ONE, TWO, started=True, annotations=decided("card0|card1,card2")),
        listed(c="card5-0", d=""),
        {},
        id="a-container-still-to-come",
    ),
    pytest.param(
        seen(TWO, started=True, annotations=decided("card0,card1")),
        listed(d="card5-0"),
        {},
        id="fewer-ids-than-wanted",
    ),
    pytest.param(
        seen(container("c"), init=(INIT,), started=True),
        {"c": {}},
        {},
        id="only-init-containers-without-known-cards",
    ),
    pytest.param(
        seen(TWO, started=True, annotations=decided("card0,card1") | {"gas-allocated-cards": "card1"}),
        listed(d="card1-0,card1-1"),
        {},
        id="a-receipt-with-fewer-cards-that-is-there-already",
    ),
    pytest.param(
        seen(
            ONE, init=(INIT, SIDE), started=True, annotations={"gas-allocated-init-cards": "|card3"} | decided("card0")
        ),
        listed(s="card3-0", c="card0-0"),
        {},
        id="a-receipt-without-an-init-container-without-known-cards",
    ),
    pytest.param(
        seen(
            container("c", i915="1.5"),
            container("d", xe=1),
            started=True,
            annotations={"gas-allocated-cards": "|card1"},
        ),
        {"c": {}, "d": {XE: ids("card1-0")}},
        {},
        id="a-need-that-cannot-be-read-and-has-its-receipt",
    ),
]


@pytest.mark.parametrize(("pod", "listing", "init"), TRUE)
def test_no_receipt(pod: GpuPod, listing: ContainerIds, init: Mapping[int, frozenset[Card]]) -> None:
    assert receipt(pod, listing, init) is None


def mismatch(clauses: str, **cards: str) -> Receipt:
    return Receipt(ReceiptKind.MISMATCH, annotated(**cards), f"kubelet gave other cards than decided: {clauses}")


def adopted(clauses: str, why: str = "there is no decision for the pod", **cards: str) -> Receipt:
    return Receipt(ReceiptKind.ADOPTED, annotated(**cards), f"{why}; kubelet chose its cards: {clauses}")


def repaired(clauses: str, **cards: str) -> Receipt:
    return Receipt(ReceiptKind.REPAIRED, annotated(**cards), f"the receipt on the pod was wrong: {clauses}, as decided")


def annotated(**cards: str) -> dict[str, str]:
    """Return the annotations ``gas-allocated-cards`` (``cards``) and ``gas-allocated-init-cards`` (``init_cards``)."""
    return {f"gas-allocated-{name.replace('_', '-')}": text for name, text in cards.items()}


WRITTEN = [
    pytest.param(
        seen(ONE, started=True, annotations=decided("card0")),
        listed(c="card1-0"),
        {},
        mismatch("container 'c' got card1 instead of card0", cards="card1"),
        id="another-card",
    ),
    pytest.param(
        seen(ONE, container("none"), TWO, started=True, annotations=decided("card0||card3,card1")),
        listed(c="card0-0", none="", d="card1-0,card2-0"),
        {},
        mismatch("container 'd' got card1, card2 instead of card1, card3", cards="card0||card1,card2"),
        id="every-container-keeps-its-place-and-cards-as-decided-come-first",
    ),
    pytest.param(
        seen(TWO, started=True, annotations=decided("card0,card1")),
        listed(d="card1-0,card1-1"),
        {},
        mismatch("container 'd' got card1 instead of card0, card1", cards="card1"),
        id="two-ids-of-one-card",
    ),
    pytest.param(
        seen(ONE, init=(INIT, SIDE), started=True, annotations=decided("card0", init="card0|card2")),
        listed(s="card3-0", c="card0-0"),
        {},
        mismatch("container 's' got card3 instead of card2", init_cards="card0|card3"),
        id="a-sidecar-beside-an-init-container-without-known-cards",
    ),
    pytest.param(
        seen(ONE, init=(INIT,), started=True, annotations=decided("card0", init="card0")),
        listed(c="card0-0"),
        {0: cards(4)},
        mismatch("container 'i' got card4 instead of card0", init_cards="card4"),
        id="an-init-container-that-we-remember",
    ),
    pytest.param(
        seen(ONE, started=True),
        listed(c="card1-0"),
        {},
        adopted("container 'c' has card1", cards="card1"),
        id="adopted",
    ),
    pytest.param(
        seen(container("c", i915=1, xe=1), started=True, annotations=decided("card1")),
        {"c": {I915: ids("card0-0"), XE: ids("card1-0")}},
        {},
        mismatch("container 'c' got card0, card1 instead of card1", cards="card1,card0"),
        id="cards-of-both-drivers-where-the-original-decided-for-one",
    ),
    pytest.param(
        seen(ONE, init=(INIT, SIDE), started=True),
        listed(s="card2-0", c="card1-0"),
        {0: cards(1)},
        adopted(
            "container 'i' has card1; container 's' has card2; container 'c' has card1",
            init_cards="card1|card2",
            cards="card1",
        ),
        id="adopted-with-init-containers",
    ),
    pytest.param(
        seen(container("c"), init=(INIT,), started=True),
        {"c": {}},
        {0: cards(1)},
        adopted("container 'i' has card1", init_cards="card1"),
        id="adopted-for-its-init-container-alone",
    ),
    pytest.param(
        seen(ONE, started=True, annotations=decided("card0|card1")),
        listed(c="card1-0"),
        {},
        Receipt(
            ReceiptKind.MISMATCH,
            {"gas-allocated-cards": "card1"},
            "its decision cannot be read: annotation gas-container-cards: expected 1 container(s)"
            " between '|', found 2; kubelet chose its cards: container 'c' has card1",
        ),
        id="a-decision-that-cannot-be-read",
    ),
    pytest.param(
        seen(container("c", i915=1) | FOO, started=True),
        listed(c="card1-0"),
        {},
        adopted("container 'c' has card1", cards="card1"),
        id="an-amount-that-no-card-can-have",
    ),
    pytest.param(
        seen(
            container("c", i915="1.5"),
            container("d", xe=1),
            init=(INIT, SIDE),
            started=True,
            annotations=decided("card0") | {"gas-allocated-init-cards": "card0"},
        ),
        {"s": {I915: ids("card2-0")}, "c": {}, "d": {XE: ids("card1-0")}},
        {},
        adopted(
            "container 's' has card2; container 'd' has card1",
            "its need cannot be read: container 'c', 'gpu.intel.com/i915': expected a whole number, found '1.5'",
            init_cards="|card2",
            cards="|card1",
        ),
        id="a-need-that-cannot-be-read",
    ),
    pytest.param(
        seen(ONE, started=True, annotations=decided("card0") | {"gas-allocated-cards": "card9"}),
        listed(c="card0-0"),
        {},
        repaired("container 'c' has card0", cards="card0"),
        id="a-forged-receipt",
    ),
    pytest.param(
        seen(TWO, started=True, annotations=decided("card0,card1") | {"gas-allocated-cards": "card0"}),
        listed(d="card0-0,card1-0"),
        {},
        repaired("container 'd' has card0, card1", cards="card0,card1"),
        id="a-forged-receipt-with-fewer-cards",
    ),
    pytest.param(
        seen(ONE, init=NO_CARDS, started=True, annotations=decided("card0") | {"gas-allocated-init-cards": "|||"}),
        listed(c="card0-0"),
        {},
        repaired("container 'c' has card0", cards="card0", init_cards=""),
        id="a-damaged-receipt-is-taken-away",
    ),
    pytest.param(
        seen(*(container(f"c{n}", i915=1) for n in range(5)), started=True),
        {f"c{n}": {I915: ids(f"card{n}-0")} for n in range(5)},
        {},
        adopted(
            "container 'c0' has card0; container 'c1' has card1; container 'c2' has card2; and 2 more",
            cards="card0|card1|card2|card3|card4",
        ),
        id="a-sentence-names-a-few",
    ),
]


@pytest.mark.parametrize(("pod", "listing", "init", "expected"), WRITTEN)
def test_receipt(pod: GpuPod, listing: ContainerIds, init: Mapping[int, frozenset[Card]], expected: Receipt) -> None:
    assert receipt(pod, listing, init) == expected


ROLES = st.sampled_from(list(Role))
HANDED = st.lists(st.tuples(ROLES, st.sets(st.integers(0, 12), max_size=3)), min_size=1, max_size=5)


@given(HANDED, st.booleans(), st.booleans(), st.randoms(use_true_random=False))
def test_the_extenders_books_hold_what_kubelet_gave(
    handed: list[tuple[Role, set[int]]], is_decided: bool, remembers: bool, chance: random.Random
) -> None:
    """The extender reads the plugin's text, and afterwards no receipt is missing."""
    given_cards = sorted(handed, key=lambda each: each[0] is Role.APP)
    apps = [own for role, own in given_cards if role is Role.APP]
    if not apps:
        given_cards.append((Role.APP, {0}))
    containers = [
        container(f"c{at}", always=role is Role.SIDECAR, **({"i915": len(own)} if own else {}))
        for at, (role, own) in enumerate(given_cards)
    ]
    start = sum(role is not Role.APP for role, _ in given_cards)
    other = [",".join(f"card{number}" for number in chance.sample(range(13), len(own))) for _, own in given_cards]
    annotations = decided("|".join(other[start:]), init="|".join(other[:start])) if is_decided else {}
    pod = node_pod(*containers[start:], init=tuple(containers[:start]), annotations=annotations, started=True)
    if (kept := gpu_pod(pod, DEFAULT)) is None:
        return
    listing = {
        f"c{at}": {I915: ids(*(f"card{number}-0" for number in own))} if own else {}
        for at, (role, own) in enumerate(given_cards)
        if role is not Role.INIT
    }
    init = {at: cards(*own) for at, (role, own) in enumerate(given_cards) if role is Role.INIT and own and remembers}
    really = [
        cards(*own)
        if role is not Role.INIT or remembers
        else frozenset(kept.decided.containers[at].cards if kept.decided else ())
        for at, (role, own) in enumerate(given_cards)
    ]

    answer = receipt(kept, listing, init)
    after = _with_annotations(pod, answer.annotations if answer else {})

    need = read_booked_need(need_facts(after))
    kept_after = gpu_pod(after, DEFAULT)
    assert kept_after is not None
    believed = read_receipt(after, need) or kept_after.decided
    if believed is None:
        assert not any(really)
        return
    expected = Choice(tuple(ContainerChoice(tuple(sorted(own))) for own in really))
    assert footprint(need, believed).amounts == footprint(need, expected).amounts
    assert receipt(kept_after, listing, init) is None


def test_the_books_hold_the_card_of_a_pod_with_an_amount_that_no_card_can_have() -> None:
    pod = node_pod(ONE | FOO, started=True)
    kept = gpu_pod(pod, DEFAULT)
    assert kept is not None
    answer = receipt(kept, listed(c="card1-0"), {})
    assert answer is not None
    after = _with_annotations(pod, answer.annotations)
    need = read_booked_need(need_facts(after))
    believed = read_receipt(after, need)
    assert believed is not None
    assert footprint(need, believed).amounts == {Card(1): (("i915", 1),)}


def _with_annotations(pod: Pod, annotations: Mapping[str, str]) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, annotations={**pod.annotations, **annotations})
    return msgspec.structs.replace(pod, metadata=metadata)

"""Card numbers that mean another card than before, and whether kubelet has the cards that were published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.plugin.devices.device_lists import Device
from gas.plugin.discovery.scanner import Scanner
from gas.plugin.kubelet.device_server import DeviceServer
from gas.plugin.kubelet.registration import Phase, Registration
from gas.plugin.publisher import PluginReadiness, Renumbering
from gas.values.card_facts import CardFacts
from gas.values.card_records import CardRecord, card_records
from gas.values.cards import Card
from tests.plugin.gpus import gpu

HERE, THERE = "0000:10:00.0", "0000:20:00.0"


def card(number: int, address: str, uuid: str = "") -> CardFacts:
    return gpu(number, pci_address=address, uuid=uuid)


def record(number: int, address: str, uuid: str = "") -> CardRecord:
    return CardRecord(card=Card(number), pci_address=address, uuid=uuid)


def unhealthy(cards: tuple[CardFacts, ...]) -> list[int]:
    return [int(each.card) for each in cards if not each.healthy]


def test_after_a_reboot_a_number_of_another_card_waits_for_the_pods_of_before() -> None:
    renumbering = Renumbering([record(0, HERE), record(1, THERE)])
    turned = [card(0, THERE), card(1, HERE)]
    users = {Card(0): {"a", "b"}, Card(1): {"b"}}
    assert unhealthy(renumbering.update(turned, users)) == [0, 1]
    assert unhealthy(renumbering.update(turned, {Card(0): {"a"}})) == [0]
    assert unhealthy(renumbering.update(turned, {})) == []
    assert unhealthy(renumbering.update(turned, {Card(0): {"new"}})) == []


def nodes(*renders: int) -> list[CardFacts]:
    """Return cards that differ by their render nodes alone; one with 0 has none."""
    return [
        gpu(number, device_nodes=(f"card{number}", f"renderD{render}") if render else (f"card{number}",))
        for number, render in enumerate(renders)
    ]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_card_whose_render_node_is_another_waits_for_the_pods_of_before(*, is_restarted: bool) -> None:
    users = {Card(0): {"a"}, Card(1): {"b"}, Card(2): {"c"}}
    renumbering = Renumbering()
    assert unhealthy(renumbering.update(nodes(128, 129, 130), users)) == []
    assert unhealthy(renumbering.update(nodes(0, 129, 130), users)) == []
    if is_restarted:
        renumbering = Renumbering(card_records(nodes(128, 129, 130)))
    assert unhealthy(renumbering.update(nodes(129, 128, 130), users)) == [0, 1]
    assert renumbering.sentences()[0].startswith("card0: its render node is another than before, so containers that")
    assert unhealthy(renumbering.update(nodes(129, 128, 130), {Card(0): {"a"}})) == [0]
    assert unhealthy(renumbering.update(nodes(129, 128, 130), {Card(1): {"new"}})) == []


def test_a_new_pod_does_not_prolong_the_wait() -> None:
    renumbering = Renumbering([record(0, HERE)])
    assert unhealthy(renumbering.update([card(0, THERE)], {Card(0): {"old"}})) == [0]
    assert unhealthy(renumbering.update([card(0, THERE)], {Card(0): {"new"}})) == []


def test_an_instance_that_replaced_another_is_not_withheld_again_for_its_own_pods() -> None:
    renumbering = Renumbering()
    for uuid, user, expected in [("MIG-1", "old", []), ("MIG-2", "old", [0]), *2 * [("MIG-2", "new", [])]]:
        found = renumbering.update([card(0, "", uuid)], {Card(0): {user}})  # the address is that of the whole card
        assert unhealthy(found) == expected


def test_a_number_that_no_pod_uses_is_given_out_at_once() -> None:
    renumbering = Renumbering([record(0, HERE)])
    assert unhealthy(renumbering.update([card(0, THERE)], {Card(1): {"a"}})) == []


def test_cards_that_change_places_while_the_plugin_runs_are_withheld_too() -> None:
    renumbering = Renumbering()
    assert unhealthy(renumbering.update([card(0, HERE)], {Card(0): {"a"}})) == []
    for shown in ([], [card(0, "")]):  # it is away, then its address cannot be read
        assert unhealthy(renumbering.update(shown, {Card(0): {"a"}})) == []
    assert unhealthy(renumbering.update([card(0, THERE)], {Card(0): {"a"}})) == [0]
    assert unhealthy(renumbering.update([card(0, HERE)], {Card(0): {"a"}})) == [0], "it went through another card"
    assert renumbering.withheld == {Card(0): {"a"}}


@pytest.mark.parametrize(
    ("before", "now", "withheld"),
    [
        pytest.param(("", ""), (HERE, ""), False, id="address-was-not-known"),
        pytest.param((HERE, ""), ("", ""), False, id="address-is-not-known"),
        pytest.param((HERE, "uuid-of-one"), (THERE, "uuid-of-one"), False, id="plugged-in-elsewhere"),
        pytest.param((HERE, "uuid-of-one"), (HERE, "uuid-of-other"), True, id="replaced-in-its-place"),
        pytest.param((HERE, ""), (HERE, "uuid-of-one"), False, id="uuid-was-not-known"),
        pytest.param((HERE, ""), (THERE, "uuid-of-one"), True, id="another-address-and-uuid-was-not-known"),
    ],
)
def test_a_card_is_known_by_its_uuid_and_else_by_its_address(
    before: tuple[str, str], now: tuple[str, str], *, withheld: bool
) -> None:
    renumbering = Renumbering([record(0, *before)])
    assert unhealthy(renumbering.update([card(0, *now)], {Card(0): {"a"}})) == ([0] if withheld else [])


def test_a_card_that_is_unhealthy_anyway_stays_so() -> None:
    assert unhealthy(Renumbering().update([gpu(0, healthy=False)], {})) == [0]


orders = st.permutations([HERE, THERE, "0000:30:00.0"])


@given(orders, st.lists(orders, max_size=4), st.dictionaries(st.sampled_from([0, 1, 2]), st.just({"pod"})))
def test_a_pod_never_shares_a_number_with_another_card_that_is_healthy(
    first: list[str], later: list[list[str]], used: dict[int, set[str]]
) -> None:
    """Law: while a pod lives, its number is healthy only as long as it has always meant the card the pod was given."""
    renumbering = Renumbering(record(number, address) for number, address in enumerate(first))
    users = {Card(number): pods for number, pods in used.items()}
    moved: set[int] = set()
    for order in later:
        moved |= {number for number in used if order[number] != first[number]}
        cards = renumbering.update([card(number, address) for number, address in enumerate(order)], users)
        assert set(unhealthy(cards)) == moved
    assert unhealthy(renumbering.update([card(0, HERE)], {})) == []


CARDS = (Device(id="card0-0", healthy=True),)


@dataclass
class Scans:
    finished: int = 1
    stuck: str | None = None


@dataclass(eq=False)
class Resource:
    """``devices`` is None before its first card, and empty when it has lost its last."""

    resource: str = "gpu.intel.com/xe"
    devices: tuple[Device, ...] | None = CARDS
    state: Phase = Phase.WATCHED
    trouble: str | None = None


def ready_with(*resources: Resource, scans: Scans | None = None) -> PluginReadiness:
    """Each resource plays both parts: the server, and its registration."""
    parts = {each: each for each in resources}
    return PluginReadiness(cast(Scanner, scans or Scans()), cast("dict[DeviceServer, Registration]", parts))


UNWATCHED = "kubelet does not watch gpu.intel.com/xe yet"
NO_KUBELET = Resource(state=Phase.NO_KUBELET, trouble="there is no kubelet.sock")


@pytest.mark.parametrize(
    ("resources", "scans", "why_not"),
    [
        *(
            pytest.param([Resource("r"), Resource(state=state)], Scans(), UNWATCHED, id=f"one-of-two-is-{state}")
            for state in Phase
            if state is not Phase.WATCHED
        ),
        pytest.param(
            [Resource("r"), Resource(devices=None, state=Phase.NO_CARDS)],
            Scans(),
            None,
            id="all-with-cards-watched",
        ),
        pytest.param([Resource(devices=None, state=Phase.NO_CARDS)], Scans(), None, id="a-node-without-cards"),
        pytest.param([Resource(devices=(), state=Phase.NO_KUBELET)], Scans(), UNWATCHED, id="its-last-card-is-gone"),
        pytest.param(
            [NO_KUBELET, Resource("r", state=Phase.STANDING_BACK, trouble="another plugin serves it")],
            Scans(),
            "there is no kubelet.sock; another plugin serves it",
            id="each-trouble-is-shown",
        ),
        pytest.param([Resource(trouble="there was no kubelet.sock")], Scans(), None, id="a-trouble-that-is-over"),
        pytest.param([], Scans(finished=0), "the cards of this node have not been scanned yet", id="before-a-scan"),
        pytest.param([NO_KUBELET], Scans(stuck="a scan has taken 30 s"), "a scan has taken 30 s", id="a-stuck-scan"),
    ],
)
def test_the_plugin_is_ready_once_kubelet_watches_every_resource_with_cards(
    resources: list[Resource], scans: Scans, why_not: str | None
) -> None:
    readiness = ready_with(*resources, scans=scans)
    assert readiness.why_not() == why_not
    readiness.stopping = True
    assert readiness.why_not() == "the plugin is stopping"

"""Readiness of a node's plugin, and the sentence that says why it is not ready."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest

from gas.plugin.devices.device_lists import Device
from gas.plugin.discovery.scanner import Scanner
from gas.plugin.kubelet.device_server import DeviceServer
from gas.plugin.kubelet.registration import Registration, State
from gas.plugin.readiness import Readiness

CARDS = (Device(id="card0-0", healthy=True),)


@dataclass
class Scans:
    finished: int = 1
    stuck: str | None = None


@dataclass(eq=False)
class Resource:
    """``devices`` is None before its first card, and empty when it has lost its last."""

    resource: str
    devices: tuple[Device, ...] | None = CARDS
    state: State = State.WATCHED
    trouble: str | None = None


def ready_with(*resources: Resource, scans: Scans | None = None) -> Readiness:
    """Each resource plays both parts: the server, and its registration."""
    parts = {each: each for each in resources}
    return Readiness(cast(Scanner, scans or Scans()), cast("dict[DeviceServer, Registration]", parts))


@pytest.mark.parametrize("state", [state for state in State if state is not State.WATCHED])
def test_not_ready_while_kubelet_does_not_watch_a_resource_with_cards(state: State) -> None:
    readiness = ready_with(Resource("gpu.intel.com/i915"), Resource("gpu.intel.com/xe", state=state))
    assert readiness.why_not() == "kubelet does not watch gpu.intel.com/xe yet"


def test_ready_when_kubelet_watches_every_resource_with_cards() -> None:
    without_cards = Resource("gpu.intel.com/xe", devices=None, state=State.NO_CARDS)
    assert ready_with(Resource("gpu.intel.com/i915"), without_cards).why_not() is None


def test_a_node_without_cards_is_ready() -> None:
    assert ready_with(Resource("gpu.intel.com/i915", devices=None, state=State.NO_CARDS)).why_not() is None


def test_a_resource_that_lost_its_last_card_must_be_watched_on() -> None:
    lost = Resource("gpu.intel.com/i915", devices=(), state=State.NO_KUBELET)
    assert ready_with(lost).why_not() == "kubelet does not watch gpu.intel.com/i915 yet"


def test_the_trouble_of_each_resource_is_shown() -> None:
    resources = (
        Resource("gpu.intel.com/i915", state=State.NO_KUBELET, trouble="there is no kubelet.sock"),
        Resource("gpu.intel.com/xe", state=State.STANDING_BACK, trouble="another plugin serves it"),
    )
    assert ready_with(*resources).why_not() == "there is no kubelet.sock; another plugin serves it"


def test_an_old_trouble_of_a_resource_that_is_watched_is_not_shown() -> None:
    assert ready_with(Resource("gpu.intel.com/i915", trouble="there was no kubelet.sock")).why_not() is None


def test_not_ready_before_the_first_scan() -> None:
    readiness = ready_with(scans=Scans(finished=0))
    assert readiness.why_not() == "the cards of this node have not been scanned yet"


def test_not_ready_while_a_scan_is_stuck() -> None:
    readiness = ready_with(Resource("gpu.intel.com/i915"), scans=Scans(stuck="a scan has taken 30 s"))
    assert readiness.why_not() == "a scan has taken 30 s"


def test_not_ready_any_more_once_it_is_stopping() -> None:
    readiness = ready_with(Resource("gpu.intel.com/i915"))
    readiness.stopping = True
    assert readiness.why_not() == "the plugin is stopping"

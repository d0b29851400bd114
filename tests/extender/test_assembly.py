"""The whole extender on an API server: from its start to bound pods."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from gas.extender import assembly
from gas.extender.command_line import parse_flags
from gas.extender.decider import options_of
from gas.extender.readiness import NotReady
from gas.ledger.ledger import State
from gas.placement.order import UsedFirst
from gas.values.cards import Card
from gas.vocabularies.protocol import NeedOptions
from sandbox.api.failure import ApiFailure
from sandbox.api.kinds import CLAIMS, EVENTS, NODES, PODS
from sandbox.api.routes import Access
from sandbox.api.server import ApiServer
from tests.background import eventually
from tests.builders import container, pod_json
from tests.extender.assembled import add_node, add_pod, bind, extender, passing, pod_now, remove_pod, state


async def test_from_the_start_to_a_bound_pod_that_the_watch_confirms(server: ApiServer, tmp_path: Path) -> None:
    add_node(server)
    async with extender(server, tmp_path) as running:
        pod = add_pod(server, "a")
        assert await passing(running, pod, "n1", "n2") == ["n1"]
        assert await bind(running, pod) == ""
        assert pod_now(server, "a")["spec"]["nodeName"] == "n1"
        assert pod_now(server, "a")["metadata"]["annotations"]["gas-container-cards"] == "card0"
        await eventually(lambda: state(running, pod) is State.HELD)
        remove_pod(server, "a")
        await eventually(lambda: state(running, pod) is None)


def test_needs_are_read_as_the_flags_say() -> None:
    flags = parse_flags(
        ["--enableAllowlist", "--enableDenylist", "--card-order=used-first", "--card-order-for-all", "--card-near"]
    )
    assert options_of(flags).need == NeedOptions(
        allowlist=True, denylist=True, card_order=UsedFirst(), order_for_all=True, card_near=True
    )


# contract E9.7
async def test_the_ledger_is_complete_before_the_first_decision(server: ApiServer, tmp_path: Path) -> None:
    add_node(server)
    held = asyncio.Event()

    async def slow(access: Access) -> ApiFailure | None:
        if access.kind is PODS and access.verb == "list":
            await held.wait()
        return None

    server.settings.intercept = slow
    taken = [
        add_pod(server, name, node="n1", annotations={"gas-container-cards": cards})
        for name, cards in (("a", "card0"), ("b", "card1"))
    ]
    async with extender(server, tmp_path, ready=False) as running:
        body = json.dumps({"Pod": pod_json(container(i915=1)), "NodeNames": ["n1"]}).encode()
        await eventually(running.node_watch.synced.is_set)
        with pytest.raises(NotReady, match="the first list of pods is still being read"):
            await running.filter(body)
        held.set()
        await eventually(running.readiness.may_act)
        assert all(state(running, pod) is State.HELD for pod in taken)
        assert await passing(running, pod_json(container(i915=1)), "n1") == []


UNKNOWN_RESOURCE = (
    "order of cards least-used=milicores: no card of the cluster has the resource milicores, so cards are tried in"
    " natural order; expected one of i915, millicores"
)


@pytest.mark.parametrize(
    ("flag", "warnings"),
    [
        pytest.param("--card-order=least-used=milicores", [UNKNOWN_RESOURCE], id="misspelt"),
        pytest.param("--balancedResource=milicores", [UNKNOWN_RESOURCE], id="by-the-older-flag"),
        pytest.param("--card-order=best-fit=millicores", [], id="known"),
        pytest.param("--card-order=used-first", [], id="no-resource"),
    ],
)
async def test_an_order_by_a_resource_that_no_card_has_is_reported(
    server: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, flag: str, warnings: list[str]
) -> None:
    add_node(server, cards=1, i915=1, millicores=1000)
    assert await warnings_of_order(server, tmp_path, caplog, flag) == warnings


async def test_an_order_is_not_reported_while_the_cluster_has_no_cards(
    server: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await warnings_of_order(server, tmp_path, caplog, "--card-order=least-used=milicores") == []


async def warnings_of_order(
    server: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, flag: str
) -> list[str]:
    caplog.set_level(logging.INFO)
    async with extender(server, tmp_path, flag):
        await eventually(lambda: "ready" in caplog.messages)
    return [message for message in caplog.messages if message.startswith("order of cards")]


async def test_a_changed_node_is_judged_before_the_next_filter(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add_node(server)
    pod = add_pod(server, "waits")
    async with extender(server, tmp_path) as running:
        for _ in range(2):
            assert await passing(running, pod, "n1") == ["n1"]
        add_pod(server, "bound", node="n1", annotations={"gas-container-cards": "card0"})
        (by_name,) = running.decider.verdicts._by_name.values()
        await eventually(lambda: bool(running.decider.ledger.on_node("n1")) and "n1" in by_name)
        with monkeypatch.context() as standing_by:
            standing_by.setattr(running.readiness, "why_not", lambda: "another replica leads")
            add_pod(server, "other", node="n1", annotations={"gas-container-cards": "card0"})
            await eventually(lambda: len(running.decider.ledger.on_node("n1")) == 2)
            await asyncio.sleep(0.05)
            assert "n1" not in by_name
        for _ in range(2):
            assert await passing(running, pod, "n1") == ["n1"]
        monkeypatch.setattr(running.decider.verdicts, "_place", lambda *_: 1 / 0)
        add_pod(server, "second", node="n1", annotations={"gas-container-cards": "card0"})
        await eventually(lambda: "changed nodes could not be judged ahead" in caplog.text)


async def test_events_show_what_only_bookings_by_card_can_see(server: ApiServer, tmp_path: Path) -> None:
    add_node(server, "n1", cards=1)
    add_node(server, "n2", labels={"gpu.intel.com/gpu-numbers": "0.x"})
    async with extender(server, tmp_path) as running:
        greedy = add_pod(server, "greedy", cards=3)
        await eventually(lambda: len(running.decider.pods.waiting) == 1)
        for _ in range(3):
            assert await passing(running, greedy, "n1") == []
        add_pod(server, "unannotated", node="n1")
        await eventually(lambda: len(reasons(server)) == 3)
        assert sorted(reasons(server)) == ["GPUBookingMismatch", "InvalidGPULabels", "NoGPUCardFits"]


async def test_a_pod_bound_without_cards_while_no_extender_ran_is_reported(server: ApiServer, tmp_path: Path) -> None:
    add_node(server)
    add_pod(server, "before", node="n1")
    async with extender(server, tmp_path):
        await eventually(lambda: reasons(server) == ["GPUBookingMismatch"])


async def test_at_the_start_every_mismatch_and_invalid_node_is_announced_once(
    server: ApiServer, tmp_path: Path, posted: list[tuple[str, str]]
) -> None:
    add_node(server)
    add_node(server, "n2", labels={"gpu.intel.com/gpu-numbers": "0.x"})
    add_pod(server, "before", node="n1")
    async with extender(server, tmp_path) as running:
        await eventually(running.readiness.has_begun)
        await eventually(lambda: len(reasons(server)) == 2)
        assert posted == [("before", "GPUBookingMismatch"), ("n2", "InvalidGPULabels")]
        assert [stored.value["count"] for stored in server.api.storage.objects(EVENTS.plural)] == [1, 1]


async def test_a_receipt_that_the_ledger_follows_is_reported(server: ApiServer, tmp_path: Path) -> None:
    add_node(server)
    async with extender(server, tmp_path) as running:
        pod = add_pod(server, "a", node="n1", annotations={"gas-container-cards": "card0"})
        await eventually(lambda: state(running, pod) is State.HELD)
        patch = b'{"metadata":{"annotations":{"gas-allocated-cards":"card1"}}}'
        server.api.patch(PODS, "default", "a", ("application/merge-patch+json", patch))
        await eventually(lambda: reasons(server) == ["GPUAllocationCorrected"])
        assert running.decider.ledger.holders("n1") == {Card(1): 1}


async def test_a_forbidden_list_is_named(server: ApiServer, tmp_path: Path) -> None:
    server.settings.authorize = lambda access: access.kind is not NODES
    async with extender(server, tmp_path, ready=False) as running:
        await eventually(lambda: "nodes cannot be listed" in (running.readiness.why_not() or ""))
        assert 'the verb "list" on resource "nodes"' in (running.readiness.why_not() or "")


@pytest.mark.parametrize(
    ("verb", "flags"),
    [("list", ()), ("patch", ()), ("patch", ("--leader-elect", "--lease-namespace=default"))],
    ids=["list", "patch", "patch-as-a-leader"],
)
async def test_what_forbids_the_end_of_earlier_bindings_is_named_at_once(
    server: ApiServer, tmp_path: Path, verb: str, flags: tuple[str, ...]
) -> None:
    add_node(server)
    add_pod(server, "a")
    server.settings.authorize = lambda access: (access.kind, access.verb) != (PODS, verb)
    async with extender(server, tmp_path, *flags, ready=False) as running:
        missing = f'the verb "{verb}" on resource "pods"'
        await eventually(lambda: missing in (running.readiness.why_not() or ""))
        assert ("so nothing is decided for up to 60 s" in (running.readiness.why_not() or "")) == (verb == "patch")
        server.settings.authorize = lambda _access: True
        await eventually(running.readiness.may_act)
        assert not running.readiness._trouble


def reasons(server: ApiServer) -> list[str]:
    return [str(stored.value["reason"]) for stored in server.api.storage.objects(EVENTS.plural)]


async def test_a_pod_that_waits_for_a_memory_that_no_node_knows_says_so(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "UNKNOWN_MEMORY_INTERVAL", 0.05)
    add_node(server, cards=1, annotations={"gas-cards": '[{"card":0,"memorySource":"unknown"}]'}, i915=1)
    sent = pod_json(container(i915=1, memory_max="5G") | {"image": "example/main:1"}, name="waits")
    server.api.create(PODS, "default", sent)

    def messages() -> list[str]:
        found = [stored.value for stored in server.api.storage.objects(EVENTS.plural)]
        return [each["message"] for each in found if each["reason"] == "GPUMemoryUnknown"]

    async with extender(server, tmp_path):
        await eventually(messages)
        (message,) = messages()
        assert "the memory of card0 of node n1 is unknown" in message


@pytest.mark.parametrize("refused", ["", "get"], ids=["allowed", "forbidden"])
async def test_an_extender_that_starts_keeps_the_cards_of_pods_whose_volumes_were_made(
    server: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, refused: str
) -> None:
    add_node(server, cards=1)
    other = add_pod(server, "other")
    tied = pod_json(container(i915=1) | {"image": "example/main:1"}, name="tied")
    volumes = [
        {"name": "plain", "emptyDir": {}},
        {"name": "cache", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    tied["spec"]["volumes"] = volumes
    server.api.create(PODS, "default", tied)
    for name, node in (("data", ""), ("tied-cache", "n1")):
        annotations = {"volume.kubernetes.io/selected-node": node} if node else {}
        server.api.create(CLAIMS, "default", {"metadata": {"name": name, "annotations": annotations}})
    server.settings.authorize = lambda access: (access.kind, access.verb) != (CLAIMS, refused)
    async with extender(server, tmp_path) as running:
        assert await passing(running, other, "n1") == ([] if not refused else ["n1"])
        assert ("it is not known for which nodes" in caplog.text) == bool(refused)

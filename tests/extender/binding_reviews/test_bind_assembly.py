"""The webhook of bindings in the whole extender, on an API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gas.cluster.connection import RateLimit
from gas.extender.assembly import Extender
from gas.ledger.ledger import State
from sandbox.api.failure import ApiFailure
from sandbox.api.kinds import PODS
from sandbox.api.routes import Access
from sandbox.api.server import ApiServer
from tests.background import eventually
from tests.builders import container, pod_json
from tests.extender.assembled import add_node, add_pod, extender, pod_now, state
from tests.extender.binding_reviews.setting import binding, patched, review_of

PORT = "--admission-port=1"
"""The assembly opens no port; the flag switches the reviews on."""


def add_plain_pod(server: ApiServer, name: str) -> dict[str, Any]:
    sent = pod_json(container() | {"image": "example/main:1"}, name=name)
    del sent["metadata"]["uid"]
    return dict(server.api.create(PODS, "default", sent).value)


async def reviewed(running: Extender, pod: dict[str, Any], node: str = "n1") -> dict[str, Any]:
    """Return a Binding as the API server would write it after its review."""
    sent = binding(pod, node)
    return patched(sent, await running.webhooks["bind"](review_of(sent)))


async def test_from_the_review_to_a_bound_pod_that_the_watch_confirms(server: ApiServer, tmp_path: Path) -> None:
    add_node(server)
    async with extender(server, tmp_path, PORT) as running:
        pod = add_pod(server, "a")
        server.api.bind("default", "a", await reviewed(running, pod))
        assert pod_now(server, "a")["metadata"]["annotations"]["gas-container-cards"] == "card0"
        await eventually(lambda: state(running, pod) is State.HELD)


async def test_a_review_does_not_wait_behind_other_requests(server: ApiServer, tmp_path: Path) -> None:
    add_node(server)
    async with extender(server, tmp_path, PORT) as running:
        pod = add_pod(server, "a")
        limit = running._core.api._limit = RateLimit(qps=0.001, burst=1)
        limit.reserve()
        server.api.bind("default", "a", await reviewed(running, pod))


@pytest.mark.parametrize("flags", [(), ("--node-score=balance",)], ids=["gpu-pods-only", "with-host-resources"])
async def test_pods_without_gpus_are_known_before_and_after_the_start(
    server: ApiServer, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    add_node(server)
    before = add_plain_pod(server, "before")
    read: list[str] = []

    async def note(access: Access) -> ApiFailure | None:
        if access.kind is PODS and access.verb == "get":
            read.append(access.name or "")
        return None

    server.settings.intercept = note
    async with extender(server, tmp_path, PORT, *flags) as running:
        for pod in (before, add_plain_pod(server, "after")):
            written = await reviewed(running, pod)
            assert written["metadata"] == {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            server.api.bind("default", pod["metadata"]["name"], written)
    assert not read


async def test_a_review_without_a_binding_is_taken_back_when_the_program_ends(
    server: ApiServer, tmp_path: Path
) -> None:
    add_node(server)
    async with extender(server, tmp_path, PORT) as running:
        pod = add_pod(server, "a")
        await reviewed(running, pod)
        assert state(running, pod) is State.RESERVED
        await running.finish(20.0)
        assert state(running, pod) is None
        assert pod_now(server, "a")["metadata"]["annotations"]["gas-expired-binding"].isdigit()


async def test_reading_a_pod_for_a_review_does_not_wait_for_the_rate_limit(server: ApiServer, tmp_path: Path) -> None:
    add_node(server)
    async with extender(server, tmp_path, PORT, "--qps=0.01", "--burst=5") as running:
        for number in range(10):  # more than the limit allows in a quarter of an hour
            refused = binding(add_pod(server, f"p{number}", cards=9))
            assert "node n1 no longer has room" in (await running.webhooks["bind"](review_of(refused))).refusal

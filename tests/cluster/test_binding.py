from __future__ import annotations

from pathlib import Path

import pytest

from gas.cluster.binding import bind_pod
from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiRefused, OutcomeUnknown
from gas.cluster.paths import MalformedName
from tests.cluster.scripted_server import ScriptedServer, answer, connected, hang_up, refuse


async def bind(api: ApiServer, name: str = "web-0") -> None:
    await bind_pod(
        api, namespace="shop", name=name, uid="u1", node="n1", annotations={"gas-container-cards": "card0|card1"}
    )


async def test_one_write_sets_node_and_annotations_of_this_very_pod(tmp_path: Path) -> None:
    async with ScriptedServer(answer(201)) as server, connected(server, tmp_path) as api:
        await bind(api)
    assert len(server.seen) == 1
    seen = server.seen[0]
    assert (seen.method, seen.path) == ("POST", "/api/v1/namespaces/shop/pods/web-0/binding")
    assert seen.json == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "web-0",
            "namespace": "shop",
            "uid": "u1",
            "annotations": {"gas-container-cards": "card0|card1"},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


async def test_a_refusal_changed_nothing_and_says_why(tmp_path: Path) -> None:
    step = refuse(409, "Conflict", 'pod web-0 is already assigned to node "n2"')
    async with ScriptedServer(step) as server, connected(server, tmp_path) as api:
        with pytest.raises(ApiRefused, match='already assigned to node "n2"') as caught:
            await bind(api)
    assert caught.value.status == 409


async def test_a_connection_that_dies_leaves_it_open_and_the_write_is_not_repeated(tmp_path: Path) -> None:
    async with ScriptedServer(hang_up, answer(201)) as server, connected(server, tmp_path) as api:
        with pytest.raises(OutcomeUnknown):
            await bind(api)
    assert len(server.seen) == 1


async def test_a_name_that_leads_to_another_path_is_never_sent(tmp_path: Path) -> None:
    async with ScriptedServer(answer(201)) as server, connected(server, tmp_path) as api:
        with pytest.raises(MalformedName):
            await bind(api, name="..")
    assert not server.seen

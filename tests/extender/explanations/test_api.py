"""The API for users of single namespaces: who is served, and what they see."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gas.extender.explanations import api as explanation_api
from sandbox.api.kinds import NODES, PODS
from sandbox.certificates import Authority, PemFiles
from tests.background import eventually
from tests.builders import container, node_json, pod_json
from tests.doctor.sandbox_cluster import Beside, doctor_server
from tests.e2e.ports import free_port
from tests.extender.assembled import extender

AUTHENTICATION = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
PATH = "/apis/explain.gas/v1alpha1/namespaces/default/pods/{}"
JANE = {"X-Remote-User": "jane", "X-Remote-Group": "dev", "X-Remote-Extra-Scopes%2Fa": "x"}
NO_CARDS = {"reason": "the node has no known GPU card", "nodes": 1, "hasCards": False}
MISSPELT = "container 'side' asks for 'gpu.intel.com/i951' but for no card; did you mean gpu.intel.com/i915?"
HEADERS = {"username": ["X-Remote-User"], "group": ["X-Remote-Group"], "uid": []}


@dataclass
class Served:
    """An extender that explains pods, the API server's certificate, and the API server's other data."""

    port: int
    own: Authority
    front: Authority
    proxy: PemFiles
    beside: Beside

    async def ask(
        self, path: str, headers: Mapping[str, str] = JANE, *, client: PemFiles | None = None, method: str = "GET"
    ) -> tuple[int, Any]:
        """Return status and document. Raises OSError if the client is not admitted."""
        pair = client or self.proxy
        tls = ssl.create_default_context(cafile=str(self.own.certificate))
        tls.load_cert_chain(pair.certificate, pair.key)
        return await asyncio.to_thread(_ask, self.port, tls, method, path, headers)


def _ask(port: int, tls: ssl.SSLContext, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, Any]:
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=tls)
    try:
        connection.request(method, path, headers=dict(headers))
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.fixture
async def served(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Served]:
    monkeypatch.setattr(explanation_api, "CHECK_INTERVAL", 0.1)
    own, front = Authority(tmp_path, "own"), Authority(tmp_path, "front")
    pair, proxy = own.server("extender"), front.client("front-proxy-client")
    data = {f"requestheader-{kind}-headers": json.dumps(names) for kind, names in HEADERS.items()}
    data["requestheader-extra-headers-prefix"] = '["X-Remote-Extra-"]'
    data["requestheader-client-ca-file"] = front.certificate.read_text()
    data["requestheader-allowed-names"] = '["front-proxy-client"]'
    beside = Beside(objects={AUTHENTICATION: {"data": data | getattr(request, "param", {})}})
    port = free_port()
    async with doctor_server(beside) as server:
        server.api.create(NODES, None, node_json("secret-node", cards="0.1", i915=2, memory_max=16 * 10**9))
        server.api.create(NODES, None, {"metadata": {"name": "plain"}})
        others = pod_json(
            container(i915=1, memory_max=6 * 10**9) | {"image": "i"}, name="secret-pod", node="secret-node"
        )
        others["metadata"]["annotations"] = {"gas-ts": "1", "gas-container-cards": "card0"}
        server.api.create(PODS, "default", others)
        asks = {
            "big": container(i915=1, memory_max=9 * 10**9),
            "small": container(i915=1, memory_max=10**9),
            "bad": container("main", i915=1, xe=1),
            "parts": container("main", millicores=100),
            "other": {"name": "main"},
        }
        for name, asked in asks.items():
            server.api.create(PODS, "default", pod_json(asked | {"image": "i"}, name=name))
        images = {"image": "i"}
        misspelt = pod_json(asks["small"] | images, container("side", i951=1) | images, name="misspelt")
        server.api.create(PODS, "default", misspelt)
        flags = (
            f"--explain-port={port}",
            "--bind-address=127.0.0.1",
            f"--cert={pair.certificate}",
            f"--key={pair.key}",
        )
        async with extender(server, tmp_path, *flags, token="admin"):
            yield Served(port, own, front, proxy, beside)


async def test_a_user_sees_why_the_own_pod_waits_and_of_others_only_numbers(served: Served) -> None:
    status, found = await served.ask(PATH.format("big"))
    assert status == 200
    assert found["metadata"] == {"namespace": "default", "name": "big"}
    assert (found["nodes"], found["passing"]) == (2, 0)
    text = "no card has 9.0 GB of memory.max free"
    assert found["groups"] == [{"reason": text, "nodes": 1, "hasCards": True}, NO_CARDS]
    assert "secret" not in json.dumps(found)
    spec = served.beside.reviewed[0]
    assert (spec["user"], spec["groups"], spec["extra"]) == ("jane", ["dev"], {"scopes/a": ["x"]})
    assert spec["resourceAttributes"] == {
        "verb": "get",
        "version": "v1",
        "resource": "pods",
        "namespace": "default",
        "name": "big",
    }


async def test_a_user_who_may_not_get_the_pod_learns_nothing_even_if_it_does_not_exist(served: Served) -> None:
    served.beside.lacking.add("get pods")
    sentence = 'User "jane" cannot get resource "pods" in API group "" in the namespace "default"'
    for name in ("big", "secret-pod", "none"):
        status, found = await served.ask(PATH.format(name))
        assert (status, found["kind"], found["message"]) == (403, "Status", sentence)


async def test_names_of_users_are_utf8_as_go_sends_them(served: Served) -> None:
    named = {"X-Remote-User": "jürgen".encode().decode("latin-1"), "X-Remote-Group": "Köln".encode().decode("latin-1")}
    await served.ask(PATH.format("big"), named)
    assert (served.beside.reviewed[0]["user"], served.beside.reviewed[0]["groups"]) == ("jürgen", ["Köln"])


async def test_only_the_api_server_may_name_a_user(served: Served, tmp_path: Path) -> None:
    """A forged header without the API server's certificate, with another one, or with another name, gets nothing."""
    forged = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    same_authority = Authority(tmp_path, "another")
    clients = (served.own.client("extender-client"), same_authority.client("front-proxy-client"))
    for client in (*clients, served.front.client("kubelet")):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await served.ask(PATH.format("big"), forged, client=client)
    without = ssl.create_default_context(cafile=str(served.own.certificate))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.to_thread(_ask, served.port, without, "GET", PATH.format("big"), forged)
    assert served.beside.reviewed == []


@pytest.mark.parametrize(
    ("method", "path", "headers", "expected"),
    [
        pytest.param("GET", PATH.format("big"), {}, 401, id="no-user"),
        pytest.param("GET", PATH.format("none"), JANE, 404, id="no-pod"),
        pytest.param("GET", PATH.format(".."), JANE, 400, id="no-name"),
        pytest.param("GET", PATH.format("..%2F..%2Fkube-system%2Fpods%2Fa"), JANE, 404, id="another-path"),
        pytest.param("GET", "/debug/books", JANE, 404, id="unknown-path"),
        pytest.param("DELETE", PATH.format("big"), JANE, 405, id="method"),
    ],
)
async def test_what_cannot_be_explained_is_refused(
    served: Served, method: str, path: str, headers: Mapping[str, str], expected: int
) -> None:
    status, found = await served.ask(path, headers, method=method)
    assert (status, found["kind"], found["code"]) == (expected, "Status", expected)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("small", {"nodes": 2, "passing": 1, "groups": [NO_CARDS]}, id="fits"),
        pytest.param("bad", {"reason": "container 'main' asks for both"}, id="unreadable"),
        pytest.param("secret-pod", {"reason": "the pod does not wait"}, id="bound"),
        pytest.param(
            "parts",
            {"reason": "container 'main' asks for 'gpu.intel.com/millicores' but for no card; add gpu.intel.com/i915"},
            id="parts-of-no-card",
        ),
        pytest.param("misspelt", {"passing": 1, "faults": MISSPELT}, id="a-name-that-no-node-has"),
        pytest.param("other", {"reason": "the pod asks for no card"}, id="without-cards"),
    ],
)
async def test_each_kind_of_pod_gets_its_sentence(served: Served, name: str, expected: Mapping[str, Any]) -> None:
    status, found = await served.ask(PATH.format(name))
    assert status == 200
    assert found.get("reason", "").startswith(expected.get("reason", ""))
    assert {key: found[key] for key in expected if key != "reason"} == {
        key: value for key, value in expected.items() if key != "reason"
    }


async def test_the_api_server_discovers_the_api(served: Served) -> None:
    status, found = await served.ask("/apis/explain.gas/v1alpha1")
    assert (status, found["kind"]) == (200, "APIResourceList")
    assert [each["name"] for each in found["resources"]] == ["pods"]


async def test_a_new_certificate_is_served_without_a_restart(served: Served) -> None:
    """The APIService names no authority, so a new one needs no change there."""
    address = ("127.0.0.1", served.port)
    old = await asyncio.to_thread(ssl.get_server_certificate, address)
    served.own.server("extender")

    def wait_for_new() -> None:
        while ssl.get_server_certificate(address) == old:
            time.sleep(0.2)

    await asyncio.wait_for(asyncio.to_thread(wait_for_new), 30)
    assert (await served.ask(PATH.format("small")))[0] == 200


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        pytest.param(
            {"requestheader-client-ca-file": "none"}, f"{AUTHENTICATION} has no PEM certificate in it", id="authority"
        ),
        pytest.param({"requestheader-allowed-names": '["a"'}, "cannot read how the API server proves", id="names"),
        pytest.param({"requestheader-uid-headers": "5"}, "Expected `array`, got `int`", id="headers"),
    ],
    indirect=["served"],
)
async def test_a_broken_statement_of_the_api_servers_certificate_ends_nothing(
    served: Served, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The extender goes on without this port, and serves it when the statement is right."""
    await eventually(lambda: expected in caplog.text)
    data = served.beside.objects[AUTHENTICATION]["data"]
    data |= {
        "requestheader-client-ca-file": served.front.certificate.read_text(),
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-uid-headers": "[]",
    }
    assert (await served.ask(PATH.format("small")))[0] == 200

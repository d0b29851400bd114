"""The admission webhooks are found by their names, and their certificate is judged as the API server would judge it."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from configurator.certificates import Pair, mint_authority, mint_server
from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiRefused, Forbidden
from gas.doctor.findings import Unseen
from gas.doctor.parts.admission import Webhook, find_webhooks
from gas.doctor.snapshot import ServiceSeen

NOW = datetime.now(UTC)
AUTHORITY, OTHER = mint_authority(NOW), mint_authority(NOW, name="other")
HOST = "gas-binding.gpu.svc"


class Cluster(ApiServer):
    """An API server with objects by path."""

    def __init__(self, objects: dict[str, Any], *, forbidden: str = "") -> None:
        self._objects = objects
        self._forbidden = forbidden

    async def request(self, method: str, path: str, **_: object) -> bytes:
        path = path.partition("?")[0]
        if self._forbidden and self._forbidden in path:
            raise Forbidden("Forbidden", "no", request=f"{method} {path}")
        if path not in self._objects:
            raise ApiRefused(404, "NotFound", "no", request=f"{method} {path}")
        return json.dumps(self._objects[path]).encode()


def cluster(port: int, *, trusted: Pair = AUTHORITY, **changes: Any) -> dict[str, Any]:
    """Return a cluster with a webhook for bindings whose Service has its endpoint at this port, and a foreign one."""
    service = {"namespace": "gpu", "name": "gas-binding", "path": "/bind", "port": 443}
    mine = {
        "name": "bind.pods.gas",
        "clientConfig": {"service": service, "caBundle": base64.b64encode(trusted.chain).decode()},
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "timeoutSeconds": 2,
        "matchConditions": [{"name": "a", "expression": "true"}],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["bindings"]}],
        "namespaceSelector": {},
        **changes,
    }
    foreign = {"name": "pods.example.com", "clientConfig": {"url": "https://example.com"}}
    group = "/apis/admissionregistration.k8s.io/v1"
    slices = "/apis/discovery.k8s.io/v1/namespaces/gpu/endpointslices"
    return {
        f"{group}/validatingwebhookconfigurations": {"metadata": {}, "items": []},
        f"{group}/mutatingwebhookconfigurations": {
            "metadata": {},
            "items": [{"metadata": {"name": "my-admission"}, "webhooks": [mine, foreign]}],
        },
        "/api/v1/namespaces/gpu/services/gas-binding": {"spec": {"clusterIP": "None", "ports": [{"port": 443}]}},
        slices: {"metadata": {}, "items": [{"endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"port": port}]}]},
    }


@pytest.fixture
async def port(tmp_path: Path) -> Any:
    """Return the port of a server that presents a certificate of `AUTHORITY` for `HOST`."""
    pair = mint_server(AUTHORITY, [HOST], NOW)
    (tmp_path / "pair.pem").write_bytes(pair.chain + pair.key_text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair.pem")
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def found(objects: dict[str, Any]) -> Webhook:
    (webhook,) = await find_webhooks(Cluster(objects), 5)
    return webhook


async def test_only_our_webhooks_are_found_with_what_is_registered(port: int) -> None:
    webhook = await found(cluster(port))
    assert (webhook.kind, webhook.configuration, webhook.name) == (
        "mutatingwebhookconfiguration", "my-admission", "bind.pods.gas"
    )  # fmt: skip
    assert webhook.is_for_bindings
    registered = webhook.registered
    assert (registered.failure_policy, registered.timeout_seconds, webhook.conditions) == ("Ignore", 2, ["true"])
    assert registered.reinvocation_policy == "IfNeeded"
    (rule,) = registered.rules or ()
    assert [rule.matches("CREATE", "", each) for each in ("bindings", "pods/binding")] == [True, False]
    assert registered.client_config.ca_bundle == AUTHORITY.chain
    assert isinstance(webhook.service, ServiceSeen)
    assert (webhook.connected, webhook.not_verified) == (f"127.0.0.1:{port}", "")


async def test_a_certificate_of_another_authority_is_not_verified(port: int) -> None:
    webhook = await found(cluster(port, trusted=OTHER))
    assert "issuer" in webhook.not_verified
    assert webhook.server_certificate


async def test_a_certificate_for_another_name_is_not_verified(port: int) -> None:
    objects = cluster(port)
    for path in [path for path in objects if path.startswith("/api/")]:
        objects[path.replace("gas-binding", "elsewhere")] = objects.pop(path)
    client = objects["/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"]["items"][0]["webhooks"][0]
    client["clientConfig"]["service"]["name"] = "elsewhere"
    assert "Hostname mismatch" in (await found(objects)).not_verified


async def test_a_service_that_does_not_exist_or_respond_is_not_reached(port: int) -> None:
    objects = cluster(port)
    objects.pop("/api/v1/namespaces/gpu/services/gas-binding")
    gone = await found(objects)
    assert isinstance(gone.service, ServiceSeen)
    assert (gone.service.exists, gone.connected) == (False, "")
    silent = await found(cluster(1))
    assert silent.failure == "127.0.0.1:1: Connection refused"


async def test_a_webhook_with_a_url_is_not_tried(port: int) -> None:
    url = await found(cluster(port, clientConfig={"url": "https://gas.example:9443/bind"}))
    assert (url.path, url.service, url.connected) == ("/bind", None, "")
    assert "URL" in url.failure


async def test_a_service_that_may_not_be_seen_is_unseen(port: int) -> None:
    (webhook,) = await find_webhooks(Cluster(cluster(port), forbidden="/services/"), 5)
    assert isinstance(webhook.service, Unseen)


async def test_a_bundle_that_cannot_be_read_ends_without_a_connection(port: int) -> None:
    changed = cluster(port)
    items = changed["/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"]["items"]
    items[0]["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode("ä".encode()).decode()
    assert (await found(changed)).connected == ""

"""The sandbox's API server with the further kinds that the doctor reads."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from sandbox.api.kinds import LEASES, NAMESPACES, NODES, PODS
from sandbox.api.routes import Access, Authorize, Settings
from sandbox.api.server import ApiServer
from tests.builders import container, pod_json
from tests.doctor.snapshots import seen_node_json

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass
class Beside:
    """Further data of the API server.

    objects   path -> object
    lacking   permissions that accounts lack, as ``verb resource``
    asked     ``AGENT METHOD PATH`` of each request
    reviewed  the specs of SubjectAccessReviews
    """

    objects: dict[str, Any] = field(default_factory=dict)
    lacking: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    reviewed: list[dict[str, Any]] = field(default_factory=list)


def doctor_server(beside: Beside, *, authorize: Authorize = lambda _access: True) -> ApiServer:
    """Return an ``ApiServer`` that records every request in ``beside.asked``."""
    server = ApiServer(Settings(tokens={"admin": "admin", "viewer": "viewer"}, authorize=authorize))
    inner: Callable[[Scope, Receive, Send], Awaitable[None]] = server._app

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await inner(scope, receive, send)
            return
        agent = dict(scope["headers"]).get(b"user-agent", b"").decode()
        beside.asked.append(f"{agent} {scope['method']} {scope['path']}")
        if scope["path"] == REVIEWS:
            beside.reviewed.append((await Request(scope, receive).json())["spec"])
            wanted = beside.reviewed[-1]["resourceAttributes"]
            resource = "/".join(filter(None, (wanted["resource"], wanted.get("subresource"))))
            allowed = f"{wanted['verb']} {resource}" not in beside.lacking
            await JSONResponse({"status": {"allowed": allowed}})(scope, receive, send)
        elif scope["path"] in beside.objects:
            await JSONResponse(beside.objects[scope["path"]])(scope, receive, send)
        else:
            await inner(scope, receive, send)

    server._app = app  # type: ignore[assignment]
    return server


def fill(server: ApiServer) -> None:
    """Create two nodes with two cards each, their plugins, an extender's pod, and a pod on card0."""
    server.api.create(NAMESPACES, None, {"metadata": {"name": "kube-node-lease"}})
    for name in ("gpu-1", "gpu-2"):
        server.api.create(NODES, None, seen_node_json(name))
        add_pod(server, pod_json({"name": "p", "command": ["gas-plugin"]}, name=f"gas-plugin-{name}", node=name))
    add_pod(server, pod_json({"name": "e", "command": ["gas-extender"]}, name="gas-0", node="cp"))
    written = {"gas-ts": "1", "gas-container-cards": "card0"}
    add_pod(server, pod_json(container("m", i915=1, millicores=500), name="a", node="gpu-1", annotations=written))
    lease = {"metadata": {"name": "gpu-1"}, "spec": {"holderIdentity": "gpu-1", "leaseDurationSeconds": 40}}
    server.api.create(LEASES, "kube-node-lease", lease)


def add_pod(server: ApiServer, built: Mapping[str, Any]) -> None:
    """Create a pod, running and ready if it has a node."""
    spec = {**built["spec"], "serviceAccountName": "gas"}
    for each in (*spec["containers"], *spec.get("initContainers", ())):
        each.setdefault("image", "gas:1")
    server.api.create(PODS, "default", {**built, "spec": spec})
    if spec.get("nodeName"):
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        name = built["metadata"]["name"]
        stored = server.api.get(PODS, "default", name).value
        server.api.update(PODS, "default", name, {**stored, "status": status}, "status")


def write_kubeconfig(file: Path, url: str, token: str = "admin") -> Path:
    """Write a kubeconfig with the contexts ``admin``, the current one, and ``viewer``."""
    users = [{"name": name, "user": {"token": name}} for name in ("admin", "viewer")]
    contexts = [{"name": name, "context": {"cluster": "c", "user": name}} for name in ("admin", "viewer")]
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": token,
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": users,
        "contexts": contexts,
    }
    file.write_text(json.dumps(content))
    return file


def only_admin(access: Access) -> bool:
    return access.user == "admin"

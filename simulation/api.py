"""The API server of the simulation: the sandbox's, behind the network, with webhooks for bindings."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec

from gas.sandbox.api.client import RefusedByApi
from gas.sandbox.api.failure import ApiFailure, throttled
from gas.sandbox.api.patches import json_patched
from gas.sandbox.api.routes import Access, Settings, api_app
from gas.sandbox.api.storage import Storage
from gas.sandbox.api.verbs import Api
from simulation.loop import Process, VirtualLoop
from simulation.network import BOOKMARK_SECONDS, App, Client, Network, Server

EPOCH = 1_800_000_000.0
"""Virtual time 0 in seconds since the epoch."""

HISTORY = 400
"""Writes that watches and pages can look back."""

REVIEW_TIMEOUT = 2.0
"""Seconds for a webhook, as in deploy/components/admission/webhooks.yaml."""


class ApiServer:
    """The objects, and the process that serves them.

    reviewer   returns the extender that reviews bindings now; None without webhooks
    binds_now  the client whose Binding is being written right now; "reviewed" if an extender reviewed it
    on_binding called with client, namespace and name of the pod right before a Binding is written
    pause      returns the seconds between the review of a Binding and its write
    page       most objects on a page of a list, if clients ask for pages; 0: as many as they ask for
    """

    def __init__(self, loop: VirtualLoop, network: Network, users: list[str]) -> None:
        self._loop = loop
        self._network = network
        self._uids = 0
        self._reviews = 0
        self.process = Process("api")
        self.storage = Storage(HISTORY)
        self.api = Api(self.storage, self._now, self._new_uid)
        self.forbidden: set[str] = set()
        self.throttled = False
        self.reviewer: Callable[[], Server | None] | None = None
        self.binds_now = ""
        self.on_binding: Callable[[str, str, str], None] = lambda _client, _namespace, _name: None
        self.pause: Callable[[], float] = lambda: 0.0
        self.page = 0
        self.settings = Settings(
            tokens={user: user for user in users},
            authorize=self._authorize,
            intercept=self._intercept,
            bookmark_seconds=BOOKMARK_SECONDS,
        )
        self._app: App = api_app(self.api, self.settings)
        self.server = Server("api", self.process, self._serve)

    def go_away(self) -> None:
        """Stop to serve: connections are refused and open ones break. Webhook calls in progress go on."""
        self.server.stop()

    def come_back(self) -> None:
        """Serve again, from the same state."""
        self.server.up = True

    def _now(self) -> datetime:
        return datetime.fromtimestamp(EPOCH + self._loop.time(), UTC)

    def _new_uid(self) -> str:
        self._uids += 1
        return f"00000000-0000-4000-8000-{self._uids:012d}"

    def _authorize(self, access: Access) -> bool:
        return not any(access.user.startswith(name) for name in self.forbidden)

    async def _intercept(self, access: Access) -> ApiFailure | None:
        if self.throttled and access.user.startswith("extender"):
            return throttled()
        return None

    async def _serve(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if not scope["path"].endswith("/binding"):
            if self.page:
                scope["query_string"] = re.sub(rb"\blimit=\d+", b"limit=%d" % self.page, scope["query_string"])
            await self._app(scope, receive, send)
            return
        message = await receive()
        body: bytes = message["body"]
        user = next((value.decode()[7:] for name, value in scope["headers"] if name == b"authorization"), "")
        namespace, name = scope["path"].split("/")[4], scope["path"].split("/")[6]
        refusal, is_reviewed = "", False
        # Not the extender's own: the webhook's matchConditions leave them out, and a review would fence them.
        if self.reviewer is not None and not user.startswith("extender"):
            body, refusal, is_reviewed = await self._reviewed(namespace, name, user, body)
            if pause := self.pause():
                await asyncio.sleep(pause)
        if refusal:
            status = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": refusal}
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": msgspec.json.encode(status)})
            return

        async def again() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        self.on_binding(user, namespace, name)
        # Nothing else runs until the Binding is written or refused.
        self.binds_now = "reviewed" if is_reviewed else user
        await self._app(scope, again, send)
        self.binds_now = ""

    async def _reviewed(self, namespace: str, name: str, user: str, body: bytes) -> tuple[bytes, str, bool]:
        """Have a Binding reviewed. Return it as it is afterwards, the refusal, if any, and whether there was a review.

        Failure policy: Ignore.
        """
        assert self.reviewer is not None
        server = self.reviewer()
        if server is None:
            return body, "", False
        self._reviews += 1
        binding = msgspec.json.decode(body, type=dict[str, Any])
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": f"review-{self._reviews}",
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "subResource": "binding",
                "name": name,
                "namespace": namespace,
                "operation": "CREATE",
                "userInfo": {"username": user},
                "object": binding,
            },
        }
        client = Client(self._network, self.process, server, patience=REVIEW_TIMEOUT)
        try:
            answer = (await client.send("POST", "/bind", review))["response"]
        except (RefusedByApi, aiohttp.ClientError, TimeoutError):
            return body, "", False
        if not answer["allowed"]:
            return body, answer["status"]["message"], True
        if patch := answer.get("patch"):
            binding = json_patched(binding, msgspec.json.decode(base64.b64decode(patch)))
        return msgspec.json.encode(binding), "", True

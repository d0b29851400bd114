"""Run the simulation's API server: the sandbox's, behind the network, with webhooks for Bindings and new pods."""

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from gas.objects.json_patch import Patch, applied
from sandbox.api.client import API_FAILURES
from sandbox.api.failure import ApiFailure, throttled
from sandbox.api.routes import Access, Settings, api_app
from sandbox.api.storage import Storage
from sandbox.api.verbs import Api
from simulation.loop import Process, VirtualLoop
from simulation.network import BOOKMARK_SECONDS, App, Client, Network, Server

Object = dict[str, Any]

TIMEOUT = 2.0  # seconds for a webhook, as in deploy/components/admission/webhooks.yaml


@dataclass
class Webhooks:
    """The webhooks of the extenders. Without a response objects are written as they are: failure policy Ignore."""

    network: Network
    process: Process  # of the API server
    _: KW_ONLY
    of_bindings: Callable[[], Server | None]  # returns where Bindings are reviewed now; None if no extender does
    of_pods: Callable[[], Server | None]  # the same for new pods
    # called with a new pod to which all webhooks have responded, before and after, and its refusal
    on_pod: Callable[[Object, Object, str], None]
    _reviews: int = field(init=False, default=0)

    async def binding(self, namespace: str, name: str, user: str, sent: Object) -> tuple[Object, str, bool]:
        """Review a Binding. Return it as it is then, the refusal, if any, and whether there was a review."""
        target = {"subResource": "binding", "name": name, "namespace": namespace, "userInfo": {"username": user}}
        if (answer := await self._ask(self.of_bindings(), "/bind", target, sent)) is None:
            return sent, "", False
        return *answer, True

    async def pod(self, namespace: str, user: str, sent: Object) -> tuple[Object, str]:
        """Complete and check a new pod. Return it as it is then, and the refusal, if any."""
        target = {"namespace": namespace, "userInfo": {"username": user}}
        completed = await self._ask(self.of_pods(), "/complete", target, sent)
        pod = completed[0] if completed is not None else sent
        checked = await self._ask(self.of_pods(), "/validate", target, pod)
        refusal = checked[1] if checked is not None else ""
        if completed is not None and checked is not None:
            self.on_pod(sent, pod, refusal)
        return pod, refusal

    async def _ask(self, server: Server | None, path: str, target: Object, sent: Object) -> tuple[Object, str] | None:
        """Return an object as a webhook leaves it, and its refusal, if any; None without a response."""
        if server is None:
            return None
        self._reviews += 1
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": f"review-{self._reviews}",
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "operation": "CREATE",
                "object": sent,
                **target,
            },
        }
        client = Client(self.network, self.process, server, patience=TIMEOUT)
        try:
            answer = (await client.post(path, review))["response"]
        except API_FAILURES:
            return None
        if not answer["allowed"]:
            return sent, answer["status"]["message"]
        if patch := answer.get("patch"):
            sent = applied(msgspec.json.decode(base64.b64decode(patch), type=Patch), sent)
        return sent, ""


EPOCH = 1_800_000_000.0  # virtual time 0 in seconds since the epoch
HISTORY = 400  # number of writes that watches and pages can look back


class ApiServer:
    """The objects, and the process that serves them.

    on_write   called with client, namespace and name right before a Binding of a pod or a plugin's patch is written
    pause      returns the seconds between the review of a Binding and its write
    on_refused called with a Binding that another webhook refuses, as the extender's left it; None if there is no other
    """

    def __init__(self, loop: VirtualLoop, users: list[str]) -> None:
        self._loop = loop
        self._uids = 0
        self.process = Process("api")
        self.storage = Storage(HISTORY)
        self.api = Api(self.storage, self.now, self._new_uid)
        self.forbidden: set[str] = set()
        self.throttled = False
        self.list_pause = 0.0  # seconds between the reading of a list or an object and its first byte
        self.webhooks: Webhooks | None = None  # None if there are none
        self.binds_now = ""  # the client whose Binding is being written; "reviewed" if an extender reviewed it
        self.on_write: Callable[[str, str, str], None] = lambda _client, _namespace, _name: None
        self.pause: Callable[[], float] = lambda: 0.0
        self.on_refused: Callable[[Object], None] | None = None
        self.page = 0  # most objects on a page of a list, if clients ask for pages; 0: as many as they ask for
        self.settings = Settings(
            tokens={user: user for user in users},
            authorize=self._authorize,
            intercept=self._intercept,
            bookmark_seconds=BOOKMARK_SECONDS,
        )
        self._app: App = api_app(self.api, self.settings)
        self.server = Server("api", self.process, self._serve)

    def now(self) -> datetime:
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
        path = scope["path"].split("/")
        user = next((value.decode()[7:] for name, value in scope["headers"] if name == b"authorization"), "")
        if path[-1] == "binding":
            await self._serve_binding(path[4], path[6], user, scope, receive, send)
        elif path[-1] == "pods" and scope["method"] == "POST" and self.webhooks is not None:
            pod, refusal = await self.webhooks.pod(path[4], user, await _sent(receive))
            await (_refuse(send, refusal) if refusal else self._app(scope, _with(pod), send))
        else:
            if self.page:
                scope["query_string"] = re.sub(rb"\blimit=\d+", b"limit=%d" % self.page, scope["query_string"])
            if scope["method"] == "PATCH" and user.startswith("plugin"):
                if path[3] == "nodes":
                    self.on_write(user, "", path[4])
                elif path[5] == "pods":
                    self.on_write(user, path[4], path[6])
            is_read = scope["method"] == "GET" and b"watch=" not in scope["query_string"]
            await self._app(scope, receive, self._late(send) if is_read else send)

    def _late(self, send: Any) -> Any:
        """Return a function that sends what was read some time ago."""
        pause = self.list_pause

        async def send_late(message: Any) -> None:
            nonlocal pause
            await asyncio.sleep(pause)
            pause = 0.0
            await send(message)

        return send_late

    async def _serve_binding(
        self, namespace: str, name: str, user: str, scope: dict[str, Any], receive: Any, send: Any
    ) -> None:
        binding = await _sent(receive)
        refusal, is_reviewed = "", False
        # Not the extender's own: the webhook's matchConditions leave them out, and a review would fence them.
        if self.webhooks is not None and not user.startswith("extender"):
            binding, refusal, is_reviewed = await self.webhooks.binding(namespace, name, user, binding)
            if pause := self.pause():
                await asyncio.sleep(pause)
            if is_reviewed and not refusal and self.on_refused is not None:
                self.on_refused(binding)
                refusal = "another webhook refuses it"
        if refusal:
            await _refuse(send, refusal)
            return
        self.on_write(user, namespace, name)
        # Nothing else runs until the Binding is written or refused.
        self.binds_now = "reviewed" if is_reviewed else user
        await self._app(scope, _with(binding), send)
        self.binds_now = ""


async def _sent(receive: Any) -> dict[str, Any]:
    return msgspec.json.decode((await receive())["body"], type=dict[str, Any])


def _with(value: dict[str, Any]) -> Callable[[], Awaitable[dict[str, Any]]]:
    """Return a ``receive`` that yields this object to the application."""
    body = msgspec.json.encode(value)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def _refuse(send: Any, sentence: str) -> None:
    status = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": sentence}
    await send({"type": "http.response.start", "status": 403, "headers": []})
    await send({"type": "http.response.body", "body": msgspec.json.encode(status)})

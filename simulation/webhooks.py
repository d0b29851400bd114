"""The webhooks of the API server, which asks the extenders before it writes a Binding or a new pod."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from sandbox.api.client import API_FAILURES
from sandbox.api.patches import json_patched
from simulation.loop import Process
from simulation.network import Client, Network, Server

Object = dict[str, Any]

TIMEOUT = 2.0
"""Seconds for a webhook, as in deploy/components/admission/webhooks.yaml."""


class Webhooks:
    """The webhooks of the extenders. Without an answer objects are written as they are: failure policy Ignore.

    process     of the API server
    of_bindings returns where Bindings are reviewed now; None if no extender does
    of_pods     likewise for new pods
    on_pod      called with a new pod that all webhooks have answered about, as it was and as it is, and its refusal
    """

    def __init__(
        self,
        network: Network,
        process: Process,
        *,
        of_bindings: Callable[[], Server | None],
        of_pods: Callable[[], Server | None],
        on_pod: Callable[[Object, Object, str], None],
    ) -> None:
        self._network = network
        self._process = process
        self._of_bindings = of_bindings
        self._of_pods = of_pods
        self._on_pod = on_pod
        self._reviews = 0

    async def binding(self, namespace: str, name: str, user: str, sent: Object) -> tuple[Object, str, bool]:
        """Have a Binding reviewed. Return it as it is then, the refusal, if any, and whether there was a review."""
        target = {"subResource": "binding", "name": name, "namespace": namespace, "userInfo": {"username": user}}
        if (answer := await self._ask(self._of_bindings(), "/bind", target, sent)) is None:
            return sent, "", False
        return *answer, True

    async def pod(self, namespace: str, user: str, sent: Object) -> tuple[Object, str]:
        """Have a new pod completed and checked. Return it as it is afterwards, and the refusal, if any."""
        target = {"namespace": namespace, "userInfo": {"username": user}}
        completed = await self._ask(self._of_pods(), "/complete", target, sent)
        pod = completed[0] if completed is not None else sent
        checked = await self._ask(self._of_pods(), "/validate", target, pod)
        refusal = checked[1] if checked is not None else ""
        if completed is not None and checked is not None:
            self._on_pod(sent, pod, refusal)
        return pod, refusal

    async def _ask(self, server: Server | None, path: str, target: Object, sent: Object) -> tuple[Object, str] | None:
        """Return an object as a webhook leaves it, and its refusal, if any; None without an answer."""
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
        client = Client(self._network, self._process, server, patience=TIMEOUT)
        try:
            answer = (await client.post(path, review))["response"]
        except API_FAILURES:
            return None
        if not answer["allowed"]:
            return sent, answer["status"]["message"]
        if patch := answer.get("patch"):
            sent = json_patched(sent, msgspec.json.decode(base64.b64decode(patch)))
        return sent, ""

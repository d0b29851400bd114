"""The extender's verbs as kube-scheduler calls them, sent to one replica."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Sequence

from sandbox.certificates import Authority, PemFiles
from tests.e2e.kube_api import Object


class Verbs:
    """One TLS connection, kept open. A failing call raises OSError or HTTPException."""

    def __init__(self, port: int, authority: Authority, client: PemFiles, *, timeout: float = 30) -> None:
        context = ssl.create_default_context(cafile=authority.certificate)
        context.load_cert_chain(client.certificate, client.key)
        self._connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout, context=context)

    def filter(self, pod: Object, nodes: Sequence[str]) -> Object:
        self._send("filter", {"Pod": pod, "NodeNames": list(nodes)})
        return self.answer()

    def bind(self, pod: Object, node: str) -> Object:
        self.send_bind(pod, node)
        return self.answer()

    def send_bind(self, pod: Object, node: str) -> None:
        """Send only the request; `answer` reads the response."""
        metadata = pod["metadata"]
        names = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"]}
        self._send("bind", {**names, "Node": node})

    def answer(self) -> Object:
        answer = self._connection.getresponse()
        body = answer.read()
        assert answer.status == 200, f"{answer.status} {body!r}"
        decoded: Object = json.loads(body)
        return decoded

    def connect(self) -> None:
        self._connection.connect()

    def close(self) -> None:
        self._connection.close()

    def _send(self, verb: str, body: Object) -> None:
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", f"/scheduler/{verb}", json.dumps(body), headers)

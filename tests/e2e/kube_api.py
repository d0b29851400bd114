"""The Kubernetes API as the tests call it: JSON in, JSON out, a new connection for each call."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from sandbox import programs

Object = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"

_PATIENCE = 120.0
"""Seconds for one request. Deleting some hundred pods in one takes more than half a minute on a busy machine."""
_TRIES = 10


class RefusedError(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, method: str, path: str, message: str) -> None:
        super().__init__(f"{method} {path}: {status} {message}")
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class KubeApi:
    """The API as the user of one token. Every call raises OSError if the server cannot be reached."""

    port: int
    authority: Path
    token: str

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def get(self, path: str, **query: str) -> Object:
        return self._call("GET", path, query)

    def find(self, path: str) -> Object | None:
        """Return an object, or None if there is none of this name or kind."""
        try:
            return self.get(path)
        except RefusedError as refused:
            if refused.status == http.HTTPStatus.NOT_FOUND:
                return None
            raise

    def items(self, path: str, **query: str) -> list[Object]:
        """Return all items of a list."""
        items: list[Object] = self.get(path, **query)["items"]
        return items

    def watch(self, path: str, *, until: Callable[[], bool]) -> Iterator[tuple[str, Object]]:
        """Yield type and object of every change, first ``ADDED`` for all there are. Asks `until` every second."""
        listed = self.get(path)
        yield from (("ADDED", item) for item in listed["items"])
        version = listed["metadata"]["resourceVersion"]
        while not until():
            query = {"watch": "1", "timeoutSeconds": "1", "resourceVersion": version}
            for line in self._request("GET", f"{path}?{urlencode(query)}").splitlines():
                event = json.loads(line)
                version = event["object"]["metadata"]["resourceVersion"]
                yield event["type"], event["object"]

    def create(self, path: str, body: Object) -> Object:
        return self._call("POST", path, {}, body)

    def ensure(self, path: str, body: Object) -> None:
        """Create an object unless there is one of this name. Raises RefusedError for every other refusal."""
        try:
            self.create(path, body)
        except RefusedError as refused:
            if refused.status != http.HTTPStatus.CONFLICT:
                raise

    def merge(self, path: str, body: Object) -> Object:
        """Send a merge patch: null removes a key."""
        return self._call("PATCH", path, {}, body, MERGE_PATCH)

    def delete(self, path: str, **query: str) -> Object:
        """Delete an object or a whole collection. ``gracePeriodSeconds="0"`` deletes a pod at once."""
        return self._call("DELETE", path, query)

    def delete_all(self, path: str, **query: str) -> None:
        """Delete a collection, again while kube-apiserver ends the request before it has deleted everything."""
        for _ in range(_TRIES):
            try:
                self.delete(path, **query)
            except (OSError, http.client.HTTPException):
                continue
            except RefusedError as refused:
                if refused.status == http.HTTPStatus.GATEWAY_TIMEOUT:
                    continue
                raise
            return
        raise TimeoutError(f"{path} could not be deleted in {_TRIES} tries")

    def is_ready(self) -> bool:
        try:
            self._request("GET", "/readyz")
        except (OSError, RefusedError, http.client.HTTPException):
            return False
        return True

    def metrics(self) -> dict[str, float]:
        """Return sample -> value of what kube-apiserver counts, named with its labels as ``/metrics`` writes it."""
        lines = self._request("GET", "/metrics").decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}

    def as_user(self, token: str) -> KubeApi:
        return KubeApi(self.port, self.authority, token)

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        target = f"{path}?{urlencode(query)}" if query else path
        answer: Object = json.loads(self._request(method, target, body, content_type))
        return answer

    def _request(
        self, method: str, target: str, body: Object | None = None, content_type: str = "application/json"
    ) -> bytes:
        context = ssl.create_default_context(cafile=self.authority)
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=_PATIENCE, context=context)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type}
        try:
            connection.request(method, target, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise RefusedError(answer.status, method, target, _message(text))
        return text


def refusal(request: Callable[[], object]) -> str:
    """Send a request, and return the sentence with which the API server refuses it; empty if it does not."""
    try:
        request()
    except RefusedError as refused:
        return refused.message
    return ""


def write_kubeconfig(file: Path, api: KubeApi) -> Path:
    """Write the kubeconfig with which a program calls the API as this user. It needs no other file."""
    return programs.write_kubeconfig(file, api.url, ca=api.authority.read_bytes(), token=api.token)


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.decode(errors="replace")

"""The scheduler's side of the extender protocol: filter and bind over TLS, with Go's field names."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec

from gas.values.errors import GasError

Result = TypeVar("Result")

_SCALE = 10
"""kube-scheduler's own plugins score up to 100, extenders are meant to score up to 10."""


class ExtenderFailed(GasError):
    """The extender did not respond, or its response is unusable or has a non-empty ``Error``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderAddress:
    """The address of an extender and the client's credentials, as in an ``extenders`` entry of kube-scheduler.

    url                the ``urlPrefix``, such as ``https://127.0.0.1:9001``
    authority          certificate of the authority that signed the extender's certificate
    certificate, key   the client certificate
    managed_resources  full names; the extender is called only for pods that request one of them
    ignorable          whether the scheduler goes on without the extender when it fails: all nodes pass the filter, and
                       the scheduler itself binds a pod that the extender does not bind, without cards
    weight             of the extender's scores; 0 if it is not asked for any
    seconds            time limit of a request
    """

    url: str
    authority: Path
    certificate: Path
    key: Path
    managed_resources: tuple[str, ...]
    ignorable: bool = True
    weight: int = 0
    seconds: float = 30

    def ssl_context(self) -> ssl.SSLContext:
        """Return a context that verifies the extender and presents the client certificate."""
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.certificate, self.key)
        return context


@dataclass(frozen=True, slots=True)
class Filtered:
    """The nodes that pass the extender's filter, and the reasons why the others do not."""

    passed: tuple[str, ...]
    reasons: dict[str, str]


class _FilterResult(msgspec.Struct, rename="pascal"):
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


class _HostPriority(msgspec.Struct, rename="pascal"):
    host: str
    score: int


class _BindResult(msgspec.Struct, rename="pascal"):
    error: str = ""


class ExtenderClient:
    """Call one extender. The caller closes ``session``."""

    def __init__(self, address: ExtenderAddress, session: aiohttp.ClientSession) -> None:
        self.address = address
        self._session = session
        self._context = address.ssl_context()

    def manages(self, pod: dict[str, Any]) -> bool:
        """Return whether a container of the pod requests a resource that the extender manages."""
        spec = pod["spec"]
        for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
            resources = container.get("resources") or {}
            names = {*(resources.get("requests") or {}), *(resources.get("limits") or {})}
            if not names.isdisjoint(self.address.managed_resources):
                return True
        return False

    async def filter(self, pod: dict[str, Any], nodes: Sequence[str]) -> Filtered:
        """Ask which of the nodes can take the pod. Raises ExtenderFailed."""
        response = await self._post("filter", {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)})
        result = _decode(response, _FilterResult)
        if result.error:
            raise ExtenderFailed(result.error)
        reasons = {**(result.failed_nodes or {}), **(result.failed_and_unresolvable_nodes or {})}
        return Filtered(tuple(result.node_names or ()), reasons)

    async def prioritize(self, pod: dict[str, Any], nodes: Sequence[str]) -> dict[str, int]:
        """Ask how good each node is for the pod, and return what kube-scheduler adds to its own scores.

        Nothing is added if the extender fails, as in kube-scheduler.
        """
        try:
            response = await self._post("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)})
            scores = _decode(response, list[_HostPriority])
        except ExtenderFailed:
            return {}
        return {each.host: each.score * self.address.weight * _SCALE for each in scores}

    async def bind(self, pod: dict[str, Any], node: str) -> None:
        """Ask the extender to bind the pod to the node. Raises ExtenderFailed."""
        metadata = pod["metadata"]
        args = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        result = _decode(await self._post("bind", args), _BindResult)
        if result.error:
            raise ExtenderFailed(result.error)

    async def _post(self, verb: str, args: dict[str, Any]) -> bytes:
        url = f"{self.address.url}/scheduler/{verb}"
        timeout = aiohttp.ClientTimeout(total=self.address.seconds)
        headers = {"Content-Type": "application/json"}
        body = msgspec.json.encode(args)
        try:
            async with self._session.post(
                url, data=body, headers=headers, ssl=self._context, timeout=timeout
            ) as response:
                content = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise ExtenderFailed(f"failed {verb} with extender at URL {self.address.url}: {error}") from error
        if response.status != 200:
            raise ExtenderFailed(f"failed {verb} with extender at URL {url}, code {response.status}")
        return content


def _decode(body: bytes, kind: type[Result]) -> Result:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise ExtenderFailed(f"the extender's response cannot be decoded: {error}") from error

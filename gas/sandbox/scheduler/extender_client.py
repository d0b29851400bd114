"""The scheduler's side of the extender protocol: filter and bind, with Go's field names, over TLS."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec

from gas.errors import GasError

Result = TypeVar("Result")


class ExtenderFailed(GasError):
    """No usable answer from the extender, or one whose ``Error`` is not empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderAddress:
    """Where the extender is and how the scheduler shows itself: the ``extenders`` entry of its configuration.

    url                the ``urlPrefix``: ``https://127.0.0.1:9001``
    authority          certificate of the authority that signed the extender's
    certificate, key   the client certificate
    managed_resources  only pods that ask for one of them are shown to the extender
    ignorable          whether the scheduler does without the extender when it fails: all nodes pass its filter, and
                       a pod that it does not bind is bound by the scheduler itself, without any cards
    """

    url: str
    authority: Path
    certificate: Path
    key: Path
    managed_resources: tuple[str, ...] = ("gpu.intel.com/i915", "gpu.intel.com/xe")
    ignorable: bool = True
    seconds: float = 30

    def ssl_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.certificate, self.key)
        return context


@dataclass(frozen=True, slots=True)
class Filtered:
    """Which nodes the extender lets pass, and why not the others."""

    passed: tuple[str, ...]
    reasons: dict[str, str]


class _FilterResult(msgspec.Struct, rename="pascal"):
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


class _BindResult(msgspec.Struct, rename="pascal"):
    error: str = ""


class ExtenderClient:
    """Calls one extender. ``session`` is the caller's to close."""

    def __init__(self, address: ExtenderAddress, session: aiohttp.ClientSession) -> None:
        self.address = address
        self._session = session
        self._context = address.ssl_context()

    def is_asked_about(self, pod: dict[str, Any]) -> bool:
        """Whether some container of the pod asks for a resource that the extender manages."""
        spec = pod["spec"]
        for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
            resources = container.get("resources") or {}
            names = {*(resources.get("requests") or {}), *(resources.get("limits") or {})}
            if not names.isdisjoint(self.address.managed_resources):
                return True
        return False

    async def filter(self, pod: dict[str, Any], nodes: Sequence[str]) -> Filtered:
        """Which of the nodes can take the pod. Raises ExtenderFailed."""
        answer = await self._post("filter", {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)})
        result = _read(answer, _FilterResult)
        if result.error:
            raise ExtenderFailed(result.error)
        reasons = {**(result.failed_nodes or {}), **(result.failed_and_unresolvable_nodes or {})}
        return Filtered(tuple(result.node_names or ()), reasons)

    async def bind(self, pod: dict[str, Any], node: str) -> None:
        """Have the pod bound to the node. Raises ExtenderFailed."""
        metadata = pod["metadata"]
        args = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        result = _read(await self._post("bind", args), _BindResult)
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
                answer = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise ExtenderFailed(f"failed {verb} with extender at URL {self.address.url}: {error}") from error
        if response.status != 200:
            raise ExtenderFailed(f"failed {verb} with extender at URL {url}, code {response.status}")
        return answer


def _read(answer: bytes, kind: type[Result]) -> Result:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        raise ExtenderFailed(f"the extender's answer cannot be read: {error}") from error

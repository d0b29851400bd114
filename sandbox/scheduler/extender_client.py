"""Implement the scheduler's side of the extender protocol, with Go's field names."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec

from gas.values.errors import GasError

Result = TypeVar("Result")

_SCALE = 10  # factor on scores: kube-scheduler's own plugins score up to 100, extenders up to 10


class ExtenderFailed(GasError):
    """The extender did not respond, or its response is unusable or has a non-empty ``Error``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderAddress:
    """The address of an extender and the client's credentials, as in an ``extenders`` entry of kube-scheduler."""

    url: str  # the ``urlPrefix``, such as ``https://127.0.0.1:9001``
    authority: Path  # that signed the extender's certificate
    certificate: Path
    key: Path
    managed_resources: tuple[str, ...]  # full names; the extender is called only for pods that request one of them
    # the scheduler goes on without the extender when it fails: all nodes pass the filter, and the scheduler itself
    # binds a pod that the extender does not bind, without cards
    ignorable: bool = True
    weight: int = 0  # of the extender's scores; 0 if it is not asked for any


@dataclass(frozen=True, slots=True)
class Filtered:
    """The nodes that pass the extender's filter, and reasons by node for the others."""

    passed: frozenset[str]
    reasons: dict[str, str]


class _FilterResult(msgspec.Struct, rename="pascal"):
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


class _HostPriority(msgspec.Struct, rename="pascal"):
    host: str
    score: int


class _Victim(msgspec.Struct, rename={"uid": "UID"}):
    uid: str


class _Victims(msgspec.Struct, rename="pascal"):
    pods: list[_Victim] | None = None


Post = Callable[[str, dict[str, Any]], Awaitable[bytes]]
"""Sends the arguments of a verb to the extender and returns the body of its response. Raises ExtenderFailed."""


class ExtenderClient:
    """Call one extender. ``ignorable`` and ``weight`` are those of `ExtenderAddress`."""

    def __init__(
        self, post: Post, managed_resources: Collection[str], *, ignorable: bool = False, weight: int = 0
    ) -> None:
        self.ignorable = ignorable
        self._post = post
        self._managed = frozenset(managed_resources)
        self._weight = weight

    def manages(self, pod: dict[str, Any]) -> bool:
        """Return whether a container of the pod requests a resource that the extender manages."""
        spec = pod["spec"]
        for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
            resources = container.get("resources") or {}
            names = {*(resources.get("requests") or {}), *(resources.get("limits") or {})}
            if not names.isdisjoint(self._managed):
                return True
        return False

    async def filter(self, pod: dict[str, Any], nodes: Sequence[str]) -> Filtered:
        """Ask which of the nodes can take the pod. Raises ExtenderFailed."""
        response = await self._post("filter", {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)})
        result = _decode(response, _FilterResult)
        if result.error:
            raise ExtenderFailed(result.error)
        reasons = {**(result.failed_nodes or {}), **(result.failed_and_unresolvable_nodes or {})}
        return Filtered(frozenset(result.node_names or ()), reasons)

    async def prioritize(self, pod: dict[str, Any], nodes: Sequence[str]) -> dict[str, int]:
        """Return what kube-scheduler adds to its own scores of nodes: nothing if the extender fails or is not asked."""
        if not self._weight:
            return {}
        try:
            response = await self._post("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)})
            scores = _decode(response, list[_HostPriority])
        except ExtenderFailed:
            return {}
        return {each.host: each.score * self._weight * _SCALE for each in scores}

    async def bind(self, pod: dict[str, Any], node: str) -> None:
        metadata = pod["metadata"]
        args = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        if error := _decode(await self._post("bind", args), dict[str, str]).get("Error"):
            raise ExtenderFailed(error)

    async def preempt(self, pod: dict[str, Any], nodes: Iterable[str]) -> dict[str, list[str]]:
        """Return by node the UIDs of pods to evict for a pod. Raises ExtenderFailed."""
        proposals = {node: {"Pods": [], "NumPDBViolations": 0} for node in nodes}
        response = await self._post("preempt", {"Pod": pod, "NodeNameToMetaVictims": proposals})
        found = _decode(response, dict[str, dict[str, _Victims] | None]).get("NodeNameToMetaVictims") or {}
        return {node: sorted(each.uid for each in victims.pods or ()) for node, victims in found.items()}


@asynccontextmanager
async def connected(address: ExtenderAddress) -> AsyncIterator[ExtenderClient]:
    context = ssl.create_default_context(cafile=address.authority)
    context.load_cert_chain(address.certificate, address.key)
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(timeout=timeout, headers={"Content-Type": "application/json"}) as session:

        async def post(verb: str, args: dict[str, Any]) -> bytes:
            url = f"{address.url}/scheduler/{verb}"
            try:
                async with session.post(url, data=msgspec.json.encode(args), ssl=context) as response:
                    content = await response.read()
            except (aiohttp.ClientError, OSError) as error:
                raise ExtenderFailed(f"failed {verb} with extender at URL {address.url}: {error}") from error
            if response.status != 200:
                raise ExtenderFailed(f"failed {verb} with extender at URL {url}, code {response.status}")
            return content

        yield ExtenderClient(post, address.managed_resources, ignorable=address.ignorable, weight=address.weight)


def _decode(body: bytes, kind: type[Result]) -> Result:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise ExtenderFailed(f"the extender's response cannot be decoded: {error}") from error

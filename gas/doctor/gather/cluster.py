"""What the API server says: its version and clock, nodes, pods, heartbeats. Only questions are asked."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from typing import TypeVar

import aiohttp
import msgspec

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.credentials import Credentials
from gas.cluster.errors import ApiRefused, ApiUnavailable
from gas.doctor.gpu_pods import asks_for_gpus
from gas.doctor.looked import Unseen
from gas.doctor.objects import Details, Lease, SeenNode, SeenPod, ServerVersion
from gas.doctor.programs import program_of
from gas.doctor.snapshot import Clock
from gas.objects import Node, Pod

T = TypeVar("T")
_PAGE_SIZE = 500
_PAGE_TIMEOUT = 60.0
_TRIES = 3
"""So often a list in pages may expire under way."""

NODE_LEASES = "kube-node-lease"


class _ListMeta(msgspec.Struct, frozen=True):
    continue_: str | None = msgspec.field(default=None, name="continue")


class _Page(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


_PAGE = msgspec.json.Decoder(_Page)
_NODE = msgspec.json.Decoder(Node)
_POD = msgspec.json.Decoder(Pod)
_DETAILS = msgspec.json.Decoder(Details)
_LEASE = msgspec.json.Decoder(Lease)


async def get_object(api: ApiServer, path: str, kind: type[T]) -> T:
    """One object. Raises as `ApiServer.request`, and ApiUnavailable for an answer of another form."""
    return decoded(await api.request("GET", path), kind, path)


def decoded(body: bytes, kind: type[T], path: str) -> T:
    """The answer to a request for ``path``. Raises ApiUnavailable when it has another form."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiUnavailable(f"expected another answer from {path}: {error}") from error


async def server_version(api: ApiServer) -> str:
    return (await get_object(api, "/version", ServerVersion)).git_version


async def server_clock(credentials: Credentials, timeout: float) -> Clock | Unseen:
    """When the API server says it is."""
    address = credentials.address
    authorization = await credentials.authorization()
    headers = {"Authorization": authorization} if authorization is not None else {}
    patience = aiohttp.ClientTimeout(total=timeout)
    again = "gas doctor   # again, once the API server answers"
    try:
        async with aiohttp.ClientSession(timeout=patience) as session:
            before = time.time()
            async with session.get(
                f"{address.url}/version",
                headers=headers,
                ssl=address.tls,
                server_hostname=address.server_hostname,
                proxy=address.proxy,
                allow_redirects=False,
            ) as response:
                after = time.time()
                server = parsedate_to_datetime(response.headers["Date"]).timestamp()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return Unseen(f"the API server did not say what time it is: {error or type(error).__name__}", again)
    except (KeyError, ValueError):
        return Unseen("the API server's answer does not say what time it is", again)
    return Clock(before=before, server=server, after=after)


async def list_nodes(api: ApiServer) -> tuple[list[SeenNode], int]:
    """All nodes, and how many could not be read."""
    found, unread = [], 0
    async for raw in _objects(api, paths.nodes()):
        try:
            found.append(SeenNode(_NODE.decode(raw), _DETAILS.decode(raw)))
        except (msgspec.DecodeError, RecursionError):
            unread += 1
    return found, unread


async def list_pods(api: ApiServer) -> tuple[list[SeenPod], int]:
    """The pods that ask for GPUs and those of programs that matter; and how many could not be read."""
    found, unread = [], 0
    async for raw in _objects(api, paths.pods()):
        try:
            pod, details = _POD.decode(raw), _DETAILS.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            unread += 1
            continue
        if asks_for_gpus(pod) or any(map(program_of, details.spec.containers or ())):
            found.append(SeenPod(pod, details))
    return found, unread


async def list_node_leases(api: ApiServer) -> dict[str, Lease]:
    """Node -> its heartbeat."""
    leases = {}
    async for raw in _objects(api, paths.leases(NODE_LEASES)):
        try:
            lease = _LEASE.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            continue
        leases[lease.metadata.name] = lease
    return leases


async def count_node_features(api: ApiServer) -> int:
    """How many NodeFeature objects NFD has written."""
    count = 0
    async for _raw in _objects(api, "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeatures"):
        count += 1
    return count


async def _objects(api: ApiServer, path: str) -> AsyncIterator[msgspec.Raw]:
    """Every object of a collection, page by page; one that expires under way is read anew, what came is skipped."""
    yielded = 0
    for attempt in range(1, _TRIES + 1):
        skip = yielded
        query = {"limit": str(_PAGE_SIZE)}
        try:
            while True:
                page = decoded(await api.request("GET", path, query=query, timeout=_PAGE_TIMEOUT), _Page, path)
                for raw in page.items or ():
                    if skip:
                        skip -= 1
                        continue
                    yielded += 1
                    yield raw
                if not page.metadata.continue_:
                    return
                query["continue"] = page.metadata.continue_
        except ApiRefused as error:
            if error.status != 410 or attempt == _TRIES:
                raise

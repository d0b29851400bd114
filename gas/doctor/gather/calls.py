"""Calling the extender as kube-scheduler would: its address, its certificate, its answer for a pod that is not there.

The question is ``filter``, which changes nothing in the cluster.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import msgspec

from gas.cluster.connection import ApiServer
from gas.doctor.gather.client_tls import ClientFiles, client_context, shake_hands
from gas.doctor.gather.cluster import get_object
from gas.doctor.gather.schedulers import Found
from gas.doctor.host_files import AS_ROOT, HostFiles
from gas.doctor.looked import Unseen, looked_for
from gas.doctor.objects import EndpointSlice, Service
from gas.doctor.scheduler_configuration import ExtenderEntry, TlsConfig
from gas.doctor.snapshot import Call, Reply, ServiceSeen

_SERVICE = re.compile(r"(?P<name>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)\.svc(?:\..*)?", re.ASCII)
_LARGEST_ANSWER = 16 * 1024 * 1024


class _FilterResult(msgspec.Struct, frozen=True):
    passed: list[str] | None = msgspec.field(name="NodeNames", default=None)
    failed: dict[str, str] | None = msgspec.field(name="FailedNodes", default=None)
    unresolvable: dict[str, str] | None = msgspec.field(name="FailedAndUnresolvableNodes", default=None)
    error: str | None = msgspec.field(name="Error", default=None)


class _Slices(msgspec.Struct, frozen=True):
    items: list[EndpointSlice] | None = None


async def call_extenders(
    api: ApiServer, files: HostFiles, found: Sequence[Found], *, question: bytes | None, timeout: float
) -> list[Call]:
    """One call for each entry about GPUs in each scheduler's configuration.

    question  ExtenderArgs as JSON; None: nothing is asked
    timeout   seconds for each step
    """
    return [
        await _call(api, files, each, entry, question=question, timeout=timeout)
        for each in found
        if each.scheduler.configuration is not None and not isinstance(each.scheduler.configuration, Unseen)
        for entry in each.scheduler.configuration.gpu_extenders
    ]


async def _call(
    api: ApiServer, files: HostFiles, found: Found, entry: ExtenderEntry, *, question: bytes | None, timeout: float
) -> Call:
    tls = entry.tls_config or TlsConfig()
    named = {"client": tls.cert_file, "key": tls.key_file, "ca": tls.ca_file}
    paths = {name: _local(files, found, path) for name, path in named.items() if path}
    content = {name: path if isinstance(path, Unseen) else files.read_here(path) for name, path in paths.items()}
    readable = {
        name: path for name, path in paths.items() if isinstance(path, Path) and isinstance(content[name], bytes)
    }
    client = ClientFiles(certificate=readable.get("client"), key=readable.get("key"), authority=readable.get("ca"))
    call = Call(
        scheduler=found.scheduler,
        entry=entry,
        client=content.get("client"),
        key=content.get("key"),
        ca=content.get("ca"),
        files={name: found.mounts.host_path(path) or path for name, path in named.items() if path},
        key_mode=_mode(readable.get("key")),
    )
    if (parts := _host_and_port(entry.url_prefix)) is None:
        return replace(call, failure="urlPrefix is no address such as https://host:9001")
    host, port = parts
    call = replace(call, service=await _service(api, host))
    name = tls.server_name or host
    failures = []
    for address in await _addresses(host, port, call.service):
        told = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
        call = replace(call, tried=(*call.tried, told))
        shown = await shake_hands(address, name, client, timeout)
        if isinstance(shown, str):
            failures.append(f"{told}: {shown}")
            continue
        call = replace(
            call, connected=told, server_certificate=shown.certificate, not_verified=shown.not_verified, failure=""
        )
        if why := _why_not_asked(call, content, question):
            return replace(call, not_asked=why)
        url = f"https://{told}{urlsplit(entry.url_prefix).path.rstrip('/')}/{entry.filter_verb.lstrip('/')}"
        return replace(call, reply=await _ask(url, name, client, question or b"", timeout))
    return replace(call, failure="; ".join(failures) or f"the name {host} is not known on this machine")


def _why_not_asked(call: Call, content: Mapping[str, bytes | Unseen], question: bytes | None) -> str:
    """Why the question is not put; empty when it can be."""
    if question is None:
        return "no question was to be asked"
    if call.not_verified:
        return f"its certificate is not believed: {call.not_verified}"
    for name, what in (("client", "client certificate"), ("key", "client's key")):
        found = content.get(name)
        if found is None:
            return f"the scheduler's configuration names no {what}"
        if isinstance(found, Unseen):
            return f"the {what} cannot be shown: {found.why}"
    return ""


async def _ask(url: str, name: str, client: ClientFiles, question: bytes, timeout: float) -> Reply:
    patience = aiohttp.ClientTimeout(total=timeout)
    headers = {"Content-Type": "application/json"}
    try:
        context = client_context(client, verify=True)
        async with (
            aiohttp.ClientSession(timeout=patience) as session,
            session.post(
                url, data=question, headers=headers, ssl=context, server_hostname=name, allow_redirects=False
            ) as response,
        ):
            body = await response.content.read(_LARGEST_ANSWER)
            status = response.status
    except TimeoutError:
        return Reply(error=f"it did not answer in {timeout:g} s")
    except ssl.SSLError as error:
        return Reply(error=f"TLS fails: {error.reason or error}")
    except (aiohttp.ClientError, OSError) as error:
        return Reply(error=f"it ended the connection, as it does with a client that may not call: {error}")
    if status != 200:
        return Reply(error=f"it answered with status {status}, of which kube-scheduler shows nothing else")
    try:
        result = msgspec.json.decode(body, type=_FilterResult)
    except (msgspec.DecodeError, RecursionError) as error:
        return Reply(error=f"its answer cannot be understood: {error}")
    return Reply(
        passed=tuple(result.passed or ()),
        failed={**(result.failed or {}), **(result.unresolvable or {})},
        error=result.error or "",
    )


def _local(files: HostFiles, found: Found, path: str) -> Path | Unseen:
    """A file that the configuration names, on this machine."""
    if not found.scheduler.is_here:
        return Unseen(f"{path} is a file of {found.scheduler.name}, which is not on this machine", AS_ROOT)
    on_host = found.mounts.host_path(path)
    if on_host is None:
        return Unseen(
            f"{path} is in no directory that {found.scheduler.name} mounts from its machine",
            "gas-configurator   # writes the manifest's volumes anew",
        )
    local = Path(on_host) if found.mounts.container is None else files.local(on_host)
    return local if local is not None else Unseen(f"{on_host} of the control-plane node cannot be found here", AS_ROOT)


def _mode(file: Path | None) -> int | None:
    if file is None:
        return None
    try:
        return stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return None


def _host_and_port(url: str) -> tuple[str, int] | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    return parts.hostname, port or (443 if parts.scheme == "https" else 80)


async def _service(api: ApiServer, host: str) -> ServiceSeen | Unseen | None:
    """The Service that a host name is of; None when it is no Service's name."""
    if (match := _SERVICE.fullmatch(host)) is None:
        return None
    name, namespace = match["name"], match["namespace"]
    service = await looked_for(get_object(api, f"/api/v1/namespaces/{namespace}/services/{name}", Service))
    if isinstance(service, Unseen):
        return service
    if service is None:
        return ServiceSeen(name=name, namespace=namespace, exists=False)
    at = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    slices = await looked_for(get_object(api, f"{at}?labelSelector=kubernetes.io%2Fservice-name%3D{name}", _Slices))
    if isinstance(slices, Unseen):
        return slices
    spec = service.spec
    port = spec.ports[0].port if spec is not None and spec.ports else 0
    address = spec.cluster_ip if spec is not None else None
    return ServiceSeen(
        name=name,
        namespace=namespace,
        exists=True,
        cluster_address=(address, port) if address not in (None, "", "None") and port else None,
        ready=tuple(address for each in (slices.items if slices else None) or () for address in each.ready_addresses()),
    )


async def _addresses(host: str, port: int, service: ServiceSeen | Unseen | None) -> list[tuple[str, int]]:
    """Where to call, best first: the address that the name stands for, and of a Service its own and its endpoints'."""
    found: list[tuple[str, int]] = []
    try:
        found.append((str(ipaddress.ip_address(host)), port))
    except ValueError:
        try:
            loop = asyncio.get_running_loop()
            for *_, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                found.append((str(address[0]), port))
        except OSError:
            pass
    if isinstance(service, ServiceSeen):
        if service.cluster_address is not None:
            found.append(service.cluster_address)
        found.extend(service.ready)
    return list(dict.fromkeys(found))

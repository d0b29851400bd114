"""Call the extender as kube-scheduler would: check address and certificate, and send a filter request for the dry pod.

A filter request changes nothing in the cluster.
"""

import asyncio
import contextlib
import os
import re
import socket
import ssl
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from configurator.scheduler_configuration import ExtenderEntry, TlsConfig
from gas.cluster.connection import ApiServer, read_body
from gas.cluster.listing import Lister
from gas.cluster.objects import get_object
from gas.doctor.findings import Unseen, probe
from gas.doctor.host_files import AS_ROOT, HostFiles
from gas.doctor.objects import EndpointSlice, Service
from gas.doctor.snapshot import Call, Contact, Reply, SeenScheduler, ServiceSeen
from gas.values.errors import UNDECODABLE

_SERVICE = re.compile(r"(?P<name>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)\.svc(?:\..*)?", re.ASCII)
_LARGEST_RESPONSE = 16 * 1024 * 1024

C = TypeVar("C", bound=Contact)


class _FilterReply(msgspec.Struct, frozen=True):
    passed: list[str] | None = msgspec.field(name="NodeNames", default=None)
    failed: dict[str, str] | None = msgspec.field(name="FailedNodes", default=None)
    unresolvable: dict[str, str] | None = msgspec.field(name="FailedAndUnresolvableNodes", default=None)
    error: str | None = msgspec.field(name="Error", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFiles:
    """PEM files of a client of the extender; None for a file that is not configured or not readable."""

    certificate: Path | None
    key: Path | None
    authority: Path | bytes | None


async def call_extender(
    api: ApiServer,
    files: HostFiles,
    scheduler: SeenScheduler,
    entry: ExtenderEntry,
    *,
    question: bytes | None,
    timeout: float,
) -> Call:
    """Call an extender in a scheduler's configuration. ``timeout`` is in seconds for each step.

    ``question`` is ExtenderArgs as JSON; None to send no filter request.
    """
    tls = entry.tls_config or TlsConfig()
    named = {"client": tls.cert_file, "key": tls.key_file, "ca": tls.ca_file}
    paths = {name: _local(files, scheduler, path) for name, path in named.items() if path}
    content = {name: path if isinstance(path, Unseen) else files.read_here(path) for name, path in paths.items()}
    readable = {
        name: path for name, path in paths.items() if isinstance(path, Path) and isinstance(content[name], bytes)
    }
    client = ClientFiles(certificate=readable.get("client"), key=readable.get("key"), authority=readable.get("ca"))
    call = Call(
        scheduler=scheduler,
        entry=entry,
        client=content.get("client"),
        key=content.get("key"),
        ca=content.get("ca"),
        files={name: scheduler.host_path(path) or path for name, path in named.items() if path},
        key_mode=_mode(readable.get("key")),
    )
    if (parts := _host_and_port(entry.url_prefix)) is None:
        return replace(call, failure="urlPrefix is not a URL such as https://host:9001")
    host, port = parts
    if (named_service := _SERVICE.fullmatch(host)) is not None:
        call = replace(call, service=await find_service(api, named_service["namespace"], named_service["name"]))
    name = tls.server_name or host
    addresses = await _addresses(host, port, call.service)
    nothing = f"the name {host} cannot be resolved on this machine"
    call = await reach(call, addresses, name, client, timeout, nothing=nothing)
    if not call.connected:
        return call
    if why := _why_not_asked(call, content, question):
        return replace(call, not_asked=why)
    path = f"{urlsplit(entry.url_prefix).path.rstrip('/')}/{entry.filter_verb.lstrip('/')}"
    return replace(call, reply=await _ask(f"https://{call.connected}{path}", name, client, question or b"", timeout))


def _why_not_asked(call: Call, content: Mapping[str, bytes | Unseen], question: bytes | None) -> str:
    """Return why no filter request can be sent; empty if it can."""
    if question is None:
        return "no filter request was sent, because of --no-dry-pod, or because no node that is known offers a card"
    if call.not_verified:
        return f"its certificate is not trusted: {call.not_verified}"
    for name, what in (("client", "client certificate"), ("key", "client key")):
        found = content.get(name)
        if found is None:
            return f"the scheduler's configuration has no {what}"
        if isinstance(found, Unseen):
            return f"the {what} cannot be used: {found.why}"
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
            body = await read_body(response.content, _LARGEST_RESPONSE)
            status = response.status
    except TimeoutError:
        return Reply(error=f"no response within {timeout:g} s")
    except ssl.SSLError as error:
        return Reply(error=f"TLS fails: {error.reason or error}")
    except (aiohttp.ClientConnectionError, OSError) as error:
        return Reply(error=f"it closed the connection, as it does for a client that is not allowed: {error}")
    except aiohttp.ClientError as error:
        return Reply(error=f"its response cannot be read: {error}")
    if status != 200:
        return Reply(error=f"it responded with status {status}; kube-scheduler shows nothing of the body")
    try:
        result = msgspec.json.decode(body, type=_FilterReply)
    except UNDECODABLE as error:
        return Reply(error=f"its response cannot be decoded: {error}")
    return Reply(
        passed=tuple(result.passed or ()),
        failed={**(result.failed or {}), **(result.unresolvable or {})},
        error=result.error or "",
    )


def client_context(files: ClientFiles, *, verify: bool) -> ssl.SSLContext:
    """Return a TLS context that behaves as Go's client. Raises ssl.SSLError and OSError for unusable files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if verify and files.authority is not None:
        if isinstance(files.authority, bytes):
            context.load_verify_locations(cadata=files.authority.decode("ascii", errors="ignore"))
        else:
            context.load_verify_locations(files.authority)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Go, every certificate in the file is trusted
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if files.certificate is not None and files.key is not None:
        context.load_cert_chain(files.certificate, files.key, password="")
    return context


async def reach(
    contact: C, addresses: Iterable[tuple[str, int]], name: str, files: ClientFiles, timeout: float, *, nothing: str
) -> C:
    """Connect by TLS to the first of these addresses that responds, and return the contact with the outcome.

    name     that the certificate must be for
    nothing  why there is no connection if there are no addresses
    """
    tried: list[str] = []
    failures: list[str] = []
    for host, port in addresses:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        tried.append(address)
        shown = await _handshake((host, port), name, files, timeout, verify=True)
        reason = ""
        if isinstance(shown, ssl.SSLCertVerificationError):
            reason = shown.verify_message or "it cannot be verified"
            unverified = await _handshake((host, port), name, files, timeout, verify=False)
            shown = unverified if isinstance(unverified, bytes) else b""
        if isinstance(shown, bytes):
            return replace(
                contact, tried=tuple(tried), connected=address, server_certificate=shown, not_verified=reason
            )
        failures.append(f"{address}: {_reason(shown)}")
    return replace(contact, tried=tuple(tried), failure="; ".join(failures) or nothing)


async def _handshake(
    address: tuple[str, int], host: str, files: ClientFiles, timeout: float, *, verify: bool
) -> bytes | Exception:
    try:
        context = client_context(files, verify=verify)
        async with asyncio.timeout(timeout):
            _, writer = await asyncio.open_connection(*address, ssl=context, server_hostname=host)
    except (OSError, TimeoutError, ValueError) as error:  # ValueError: a name that a certificate cannot have
        return error
    shown: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            await writer.wait_closed()
    return shown or b""


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no connection within the timeout"
    if isinstance(error, ssl.SSLError):
        return f"TLS fails: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)  # asyncio's own text is "Connect call failed"
    return str(error) or "no response in time"


def _local(files: HostFiles, scheduler: SeenScheduler, path: str) -> Path | Unseen:
    if not scheduler.is_here:
        return Unseen(f"{path} of {scheduler.name} is on another machine", AS_ROOT)
    on_host = scheduler.host_path(path)
    if on_host is None:
        return Unseen(
            f"{path} is not in a directory that {scheduler.name} mounts from its node",
            "gas-configurator   # adds the volumes to the manifest",
        )
    return Path(on_host) if scheduler.mounts is None else files.local(on_host)


def _mode(file: Path | None) -> int | None:
    with contextlib.suppress(OSError):
        return stat.S_IMODE(file.stat().st_mode) if file is not None else None
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


async def find_service(api: ApiServer, namespace: str, name: str) -> ServiceSeen | Unseen:
    """Return a Service with its ready endpoints; one that does not exist is returned as such."""
    service = await probe(get_object(api, f"/api/v1/namespaces/{namespace}/services/{name}", Service))
    if isinstance(service, Unseen):
        return service
    if service is None:
        return ServiceSeen(name=name, namespace=namespace, exists=False)
    at = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    slices = await probe(Lister(api, at, EndpointSlice, label_selector=f"kubernetes.io/service-name={name}").fetch())
    if isinstance(slices, Unseen):
        return slices
    return ServiceSeen(
        name=name,
        namespace=namespace,
        exists=True,
        cluster_address=service.address,
        ready=tuple(address for each in slices.objects for address in each.ready_addresses()),
        has_not_ready=service.spec is not None and service.spec.publish_not_ready_addresses,
    )


async def _addresses(host: str, port: int, service: ServiceSeen | Unseen | None) -> list[tuple[str, int]]:
    """Return the addresses to try, best first: those of the name, then a Service's own and those of its endpoints."""
    found: list[tuple[str, int]] = []
    with contextlib.suppress(OSError):
        resolved = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found += [(str(address[0]), port) for *_, address in resolved]
    if isinstance(service, ServiceSeen):
        if service.cluster_address is not None:
            found.append(service.cluster_address)
        found.extend(service.ready)
    return list(dict.fromkeys(found))

"""Read a plain kubeconfig: one file, whose user logs in by a token, the file of a token or a certificate.

Importing the official client takes longer than all the rest of a command. It reads every other kubeconfig, in
`gas.cluster.kubeconfig`, and says what is wrong with one that cannot be used.
"""

import os
import ssl
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from gas.cluster.credentials import Login, header_value, make_address
from gas.cluster.errors import NoCluster
from gas.values.yaml_text import TOO_MUCH, may_grow_too_much

UNUSABLE = (OSError, ValueError, LookupError, AttributeError, RecursionError, NoCluster)
"""What is raised for a kubeconfig that is not plain, or that is wrong."""


class _Named(msgspec.Struct, frozen=True):
    name: str
    context: dict[str, Any] | None = None
    cluster: dict[str, Any] | None = None
    user: dict[str, Any] | None = None


class _Kubeconfig(msgspec.Struct, frozen=True, rename="kebab"):
    current_context: str = ""
    contexts: tuple[_Named, ...] = ()
    clusters: tuple[_Named, ...] = ()
    users: tuple[_Named, ...] = ()


class _Context(msgspec.Struct, frozen=True):
    cluster: str
    user: str


class _Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    server: str
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None


class _User(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None


def plain_contexts(files: Sequence[Path]) -> tuple[str, Mapping[str, Mapping[str, Any]]]:
    """Return the name of the current context, and all contexts. Raises one of `UNUSABLE`."""
    found = _read(files)
    return found.current_context, {each.name: each.context or {} for each in found.contexts}


async def plain_login(files: Sequence[Path], context: str = "", *, anonymous: bool = False) -> Login:
    """Return the same as `gas.cluster.kubeconfig.load_kubeconfig`. Raises one of `UNUSABLE`."""
    found, folder = _read(files), files[0].parent
    wanted = context or found.current_context
    chosen = msgspec.convert(next((each.context for each in found.contexts if each.name == wanted), None), _Context)
    cluster = msgspec.convert(
        next((each.cluster for each in found.clusters if each.name == chosen.cluster), None), _Cluster
    )
    named = next((each.user for each in found.users if each.name == chosen.user), None)
    of_user = {name: value for name, value in (named or {}).items() if value is not None}
    account = {name: value for name, value in of_user.items() if name == "as" or name.startswith("as-")}
    rest = {} if anonymous else {name: value for name, value in of_user.items() if name not in account}
    user = msgspec.convert(rest, _User)
    url = cluster.server.rstrip("/")
    if url.startswith("https:") and named is None and not anonymous:
        raise ValueError("no user")
    authority = _content(folder, cluster.certificate_authority, cluster.certificate_authority_data)

    async def authorization() -> str | None:
        token = _content(folder, user.token_file, None).decode() if user.token is None else user.token
        return header_value(f"Bearer {token}") if token else None

    address = make_address(
        f"kubeconfig {files[0]}",
        url,
        _tls(url, authority, cluster, user, folder),
        authority=authority or None,
        server_hostname=cluster.tls_server_name,
        proxy=cluster.proxy_url,
    )
    return Login(address, await authorization(), authorization, tuple(impersonation(account)))


def impersonation(user: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the headers for the account that a user of a kubeconfig acts as. Raises NoCluster."""
    said = "the kubeconfig's account to act as"
    for field, header in (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid")):
        if user.get(field):
            yield header, header_value(str(user[field]), said)
    groups, extra = user.get("as-groups") or [], user.get("as-user-extra") or {}
    if (
        not isinstance(groups, list)
        or not isinstance(extra, dict)
        or any(type(each) is not list for each in extra.values())
    ):
        raise NoCluster(f"{said}: expected a list as-groups, and lists by name as as-user-extra, found something else")
    for group in groups:
        yield "Impersonate-Group", header_value(str(group), said)
    for key, values in extra.items():
        for value in values:
            yield f"Impersonate-Extra-{quote(key, safe='')}", header_value(str(value), said)


def _read(files: Sequence[Path]) -> _Kubeconfig:
    (file,) = files
    return msgspec.yaml.decode(content_of(file), type=_Kubeconfig)


def content_of(file: Path) -> bytes:
    """Return what a file holds. Raises NoCluster, also if YAML aliases may multiply it."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise NoCluster(f"kubeconfig {file}: cannot be read: {error.strerror}") from error
    if may_grow_too_much(content):
        raise NoCluster(f"kubeconfig {file}: {TOO_MUCH}")
    return content


def _content(folder: Path, file: str | None, data: str | None) -> bytes:
    """Return what ``data`` holds in base64, else what the file holds; empty if there is neither."""
    if data is not None:
        return b64decode(data)
    return (folder / file).read_bytes() if file else b""


def _tls(url: str, authority: bytes, cluster: _Cluster, user: _User, folder: Path) -> ssl.SSLContext:
    """Return what verifies the server and presents the certificate, if there is one."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not url.startswith("https:"):
        return tls
    if authority:
        tls.load_verify_locations(cadata=authority.decode("ascii"))
    else:
        tls.load_default_certs()
    if cluster.insecure_skip_tls_verify:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if certificate := _content(folder, user.client_certificate, user.client_certificate_data):
        key = _content(folder, user.client_key, user.client_key_data)
        with _in_memory(certificate) as certificate_file, _in_memory(key or certificate) as key_file:
            tls.load_cert_chain(certificate_file, key_file, password="")  # without one, OpenSSL would ask for it
    return tls


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Write a file in memory, since OpenSSL reads certificates and keys from files only."""
    with open(os.memfd_create("gas"), "wb") as file:  # noqa: PTH123 -- of a descriptor
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"

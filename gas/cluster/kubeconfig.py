"""Read a kubeconfig as kubectl does: which API server it names, and how to log in there."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from gas.cluster.credentials import Login, describe, header_value, make_address
from gas.cluster.errors import NoCluster
from gas.values.quoted import quoted

_Yaml = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_LISTS = {"contexts": "context", "clusters": "cluster", "users": "user"}

_RENEW_BEFORE = timedelta(minutes=5)
"""A token of a command counts as expired this long before it does."""


class _Unusable(ValueError):
    """A fault of a kubeconfig, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A context, cluster or user. Relative paths in it start at ``folder``, that of its file."""

    fields: Mapping[str, Any]
    folder: Path

    def text(self, name: str) -> str:
        return str(self.fields.get(name) or "")

    def content(self, name: str) -> bytes:
        """Return what NAME-data holds in base64, else what the file NAME holds; empty if there is neither."""
        if data := self.text(f"{name}-data"):
            return base64.b64decode(data, validate=True)
        return _content(self.file(name)) if self.text(name) else b""

    def file(self, name: str) -> Path:
        return self.folder / self.text(name)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise _Unusable(f"file {file} cannot be read: {error.strerror}") from error


_NOBODY = Entry({}, Path())


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The merged content of kubeconfigs: the entries by kind and name, and the name of the current context."""

    current: str
    entries: Mapping[str, Mapping[str, Entry]]

    def entry(self, kind: str, name: str) -> Entry:
        if (found := self.entries[kind].get(name)) is None:
            raise _Unusable(f"no entry of {kind} with the name {quoted(name)}")
        return found


def read_kubeconfig(files: Sequence[Path]) -> Kubeconfig:
    """Read and merge kubeconfigs: of entries with the same name, the first counts. Raises NoCluster."""
    current = ""
    entries: dict[str, dict[str, Entry]] = {kind: {} for kind in _LISTS}
    for file in files:
        try:
            content = yaml.load(file.read_bytes(), _Yaml)  # noqa: S506 -- a safe loader
            if not isinstance(content, dict):
                raise _Unusable("another document")
            current = current or str(content.get("current-context") or "")
            for kind, one in _LISTS.items():
                for entry in content.get(kind) or ():
                    entries[kind].setdefault(str(entry["name"]), Entry(entry.get(one) or {}, file.absolute().parent))
        except OSError as error:
            raise NoCluster(f"kubeconfig {file}: cannot be read: {error.strerror}") from error
        except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            found = error if isinstance(error, _Unusable) else describe(error)
            raise NoCluster(f"kubeconfig {file}: expected a kubeconfig, found: {found}") from error
    return Kubeconfig(current, entries)


async def load_kubeconfig(paths: str, existing: Sequence[Path], context: str = "", *, anonymous: bool = False) -> Login:
    """Return the login of a context, empty for the current one. Raises NoCluster.

    paths      one or several files, written as in $KUBECONFIG
    existing   those of them that exist
    anonymous  whether the user's credentials are left out, because the caller has others
    """
    where = f"kubeconfig {paths}" + (f" with --context={context}" if context else "")
    config = read_kubeconfig(existing)
    try:
        if not (context or config.current):
            raise _Unusable("no current context; kubectl config use-context NAME sets it")
        chosen = config.entry("contexts", context or config.current)
        cluster = config.entry("clusters", chosen.text("cluster"))
        user = config.entries["users"].get(chosen.text("user"))
        if user is None and not anonymous and cluster.text("server").startswith("https:"):
            raise NoCluster(f"{where}: its current context names no user, or one that does not exist")
        return await _login(where, cluster, _NOBODY if anonymous or user is None else user)
    except NoCluster:
        raise
    except _Unusable as error:
        raise NoCluster(f"{where}: cannot be used: {error}; see kubectl config view") from error
    except ssl.SSLError as error:
        raise NoCluster(
            f"{where}: cannot be used: a certificate or key in it is not valid PEM, or they do not belong together: "
            f"{describe(error)}"
        ) from error
    except Exception as error:
        raise NoCluster(f"{where}: cannot be used: {describe(error)}") from error


@dataclass(frozen=True, slots=True)
class _Secret:
    """The proof of who the user is: the value of the Authorization header, or a certificate with its key, or neither.

    expires  when it has to be read again; None if not before it is refused
    """

    authorization: str | None = None
    certificate: bytes = b""
    key: bytes = b""
    expires: datetime | None = None


async def _login(where: str, cluster: Entry, user: Entry) -> Login:
    if user.text("auth-provider"):
        raise NoCluster(
            f"{where}: its user logs in by auth-provider, which is not supported; use a command that gets the token "
            "(exec), or --token"
        )
    secret = await _secret(where, user)

    async def refresh() -> str | None:
        nonlocal secret
        if secret.expires is not None and datetime.now(UTC) + _RENEW_BEFORE >= secret.expires:
            secret = await _secret(where, user)
        return secret.authorization

    address = make_address(
        where,
        cluster.text("server").rstrip("/"),
        _tls(cluster, secret),
        authority=(cluster.text("certificate-authority") and str(cluster.file("certificate-authority")))
        or cluster.content("certificate-authority")
        or None,
        server_hostname=cluster.text("tls-server-name") or None,
        proxy=cluster.text("proxy-url") or None,
    )
    return Login(address, secret.authorization, refresh, tuple(_impersonation(user.fields)))


def _tls(cluster: Entry, secret: _Secret) -> ssl.SSLContext:
    """Return what verifies the server and presents the certificate, if there is one."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority := cluster.content("certificate-authority"):
        tls.load_verify_locations(cadata=authority.decode("ascii"))
    elif cluster.text("server").startswith("https:"):
        tls.load_default_certs()
    if cluster.fields.get("insecure-skip-tls-verify"):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if secret.certificate:
        with _file_of(secret.certificate) as certificate, _file_of(secret.key or secret.certificate) as key:
            tls.load_cert_chain(certificate, key, password="")  # without one, OpenSSL would ask for it
    return tls


@contextmanager
def _file_of(content: bytes) -> Iterator[str]:
    """Write a file in memory, since OpenSSL reads certificates and keys from files only."""
    with open(os.memfd_create("gas"), "wb") as file:  # noqa: PTH123 -- of a descriptor
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


async def _secret(where: str, user: Entry) -> _Secret:
    if command := user.fields.get("exec"):
        return await _run(where, user.folder, command)
    certificate, key = user.content("client-certificate"), user.content("client-key")
    if token := user.text("token"):
        return _Secret(header_value(f"Bearer {token}"), certificate, key)
    if user.text("tokenFile"):
        token = _content(user.file("tokenFile")).decode()
        return _Secret(header_value(f"Bearer {token}"), certificate, key, datetime.now(UTC))
    if name := user.text("username"):
        both = f"{name}:{user.text('password')}"
        return _Secret(f"Basic {base64.b64encode(both.encode()).decode()}", certificate, key)
    return _Secret(None, certificate, key)


async def _run(where: str, folder: Path, command: Mapping[str, Any]) -> _Secret:
    """Run the command of a user, and return the credentials that it prints. Raises NoCluster."""
    name = str(command["command"])
    program = str(folder / name) if "/" in name else name
    request = {"apiVersion": command["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": False}}
    environ = {**os.environ, **{each["name"]: each["value"] for each in command.get("env") or ()}}
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *map(str, command.get("args") or ()),
            env={**environ, "KUBERNETES_EXEC_INFO": json.dumps(request)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, said = await process.communicate()
        if process.returncode:
            raise _Unusable(f"it ended with {process.returncode}: {' '.join(said.decode(errors='replace').split())}")
        status = json.loads(printed)["status"]
        token, expires = status.get("token"), status.get("expirationTimestamp")
        certificate, key = status.get("clientCertificateData") or "", status.get("clientKeyData") or ""
        if not (token or (certificate and key)):
            raise _Unusable("neither a token nor a certificate with its key")
        return _Secret(
            header_value(f"Bearer {token}") if token else None,
            certificate.encode(),
            key.encode(),
            datetime.fromisoformat(expires) if expires else None,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = error if isinstance(error, _Unusable) else describe(error)
        raise NoCluster(f"{where}: the command {name!r} returned no credentials: {why}") from error


def _impersonation(user: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the headers for the account that a user of a kubeconfig acts as. Raises NoCluster."""
    said = "the kubeconfig's account to act as"
    for field, header in (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid")):
        if user.get(field):
            yield header, header_value(str(user[field]), said)
    for group in user.get("as-groups") or ():
        yield "Impersonate-Group", header_value(str(group), said)
    for key, values in (user.get("as-user-extra") or {}).items():
        for value in values:
            yield f"Impersonate-Extra-{quote(key, safe='')}", header_value(str(value), said)

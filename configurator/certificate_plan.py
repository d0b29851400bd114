"""Decide which certificates a run reuses and which it signs, and plan their files and the extender's Secret."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from configurator.api_server import CERTIFICATE as API_SERVER_CERTIFICATE
from configurator.api_server import KEY as API_SERVER_KEY
from configurator.api_server import PROGRAM as API_SERVER
from configurator.certificates import (
    AUTHORITY_NAME,
    CLIENT_NAME,
    RENEWAL,
    Pair,
    common_name,
    end,
    is_authority,
    is_for,
    is_signed_by,
    is_usable,
    mint_authority,
    mint_client,
    mint_server,
    read_certificates,
    read_pair,
    serves,
    why_not_valid,
)
from configurator.errors import BadCertificate, ConfiguratorError
from configurator.files import FileState, WantedFile, read_input

AUTHORITY_CERTIFICATE = "ca.crt"
AUTHORITY_KEY = "ca.key"
SERVING_CERTIFICATE = "server.crt"
SERVING_KEY = "server.key"
SECRET = "extender-secret.yaml"  # noqa: S105 -- the name of a file
CLIENT_CERTIFICATE = "client.crt"
CLIENT_KEY = "client.key"

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_WRITTEN = re.compile(rb'^metadata:\n  name: "([^"\n]+)"\n  namespace: "([^"\n]+)"\n', re.MULTILINE)

Read = Callable[[Path], FileState | None]
"""Returns the state of a file that may be written later, None if it does not exist."""

SERVICE = "gas-service.default.svc.cluster.local"
WEBHOOK_SERVICES = ("gas-admission", "gas-binding")
"""The Services by which the API server calls the admission webhooks, in the namespace of the extender."""

_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class SecretName:
    """Namespace and name of a Secret. Text form: ``NAMESPACE/NAME``."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text form. Raises ValueError with what was expected."""
        namespace, slash, name = text.partition("/")
        if not slash or not _NAMESPACE.fullmatch(namespace) or not _NAME.fullmatch(name):
            raise ValueError("NAMESPACE/NAME of a Secret")
        return cls(namespace, name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


DEFAULT_SECRET = SecretName("default", "extender-secret")


def name_in(manifest: bytes) -> SecretName | None:
    """Return the name of the Secret in a manifest that `secret_manifest` wrote; None for any other text."""
    found = _WRITTEN.search(manifest)
    try:
        return SecretName.parse(f"{found[2].decode()}/{found[1].decode()}") if found is not None else None
    except ValueError:
        return None


def secret_manifest(secret: SecretName, *, certificate: bytes, key: bytes, authority: bytes) -> bytes:
    """Return the manifest of the Secret. Its type is that of ``kubectl create secret tls``, since a type cannot change.

    certificate, key  of the extender as a server
    authority         that signs the certificates of its clients
    """
    data = {"ca.crt": authority, "tls.crt": certificate, "tls.key": key}
    lines = [
        "apiVersion: v1",
        "kind: Secret",
        "metadata:",
        f'  name: "{secret.name}"',  # without the quotes a name such as 2026 would be a number
        f'  namespace: "{secret.namespace}"',
        "type: kubernetes.io/tls",
        "data:",
        *(f"  {name}: {base64.b64encode(content).decode()}" for name, content in data.items()),
    ]
    return ("\n".join(lines) + "\n").encode()


@dataclass(frozen=True, slots=True)
class GivenPair:
    """The files of a certificate that another authority signed, of its key, and of that authority."""

    certificate: Path
    key: Path
    authority: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRequest:
    """The certificates that a run should provide.

    client_directory   for files that kube-scheduler reads: its client pair, and the authority that it trusts
    own_directory      for files that only the configurator reads: its authority, the serving pair, the Secret
    cluster_authority  certificate and key of the authority that signs; None to use a small one of our own
    given_client, given_serving  pairs to use as they are; None to sign one
    names              for the serving certificate; the first is the host that kube-scheduler calls
    client_owner       user and group of kube-scheduler, as numbers; None for root
    api_server         whether to provide a client certificate for kube-apiserver
    api_server_owner   user and group of kube-apiserver, as numbers; None for root
    secret             None for the name that an earlier run used, else the default
    """

    client_directory: Path
    own_directory: Path
    cluster_authority: tuple[Path, Path] | None
    given_client: GivenPair | None
    given_serving: GivenPair | None
    names: Sequence[str]
    client_owner: tuple[int, int] | None
    api_server: bool
    api_server_owner: tuple[int, int] | None
    secret: SecretName | None


@dataclass(slots=True)
class CertificatePlan:
    """The files, in the order in which to write them, and sentences about what is new.

    serving_authority  that signs the extender's certificate, as PEM
    """

    files: list[WantedFile] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    serving_authority: bytes = b""

    def contents(self, directory: Path) -> list[bytes]:
        """Return the content of the files in a directory that are not secret."""
        return [file.content for file in self.files if file.path.parent == directory and not file.secret]


def plan_certificates(request: CertificateRequest, *, read: Read, now: datetime) -> CertificatePlan:
    """Plan the certificates.

    Raises BadCertificate for files that cannot be used, ConfiguratorError for files that another program made.
    """
    return _Planner(request, read, now).plan()


class _Planner:
    def __init__(self, request: CertificateRequest, read: Read, now: datetime) -> None:
        self._request = request
        self._read = read
        self._now = now
        self._result = CertificatePlan()
        self._signing: Pair | None = None

    def plan(self) -> CertificatePlan:
        request = self._request
        self._refuse_to_drop_authority()
        serving, serving_authority = self._serving()
        client, client_authority = self._client()
        own, clients = request.own_directory, request.client_directory
        written = self._read(own / SECRET)
        secret = request.secret or (name_in(written.content) if written is not None else None) or DEFAULT_SECRET
        manifest = secret_manifest(secret, certificate=serving.chain, key=serving.key_text, authority=client_authority)
        self._add(own / SECRET, manifest, secret=True)
        self._refuse_replaced_authority(clients / AUTHORITY_CERTIFICATE, serving_authority)
        self._add(clients / AUTHORITY_CERTIFICATE, serving_authority)
        self._add(clients / CLIENT_CERTIFICATE, client.chain)
        self._add(clients / CLIENT_KEY, client.key_text, secret=True, owner=request.client_owner)
        if request.api_server:
            self._api_server(request.api_server_owner)
        self._result.serving_authority = serving_authority
        return self._result

    def _add(self, path: Path, content: bytes, *, secret: bool = False, owner: tuple[int, int] | None = None) -> None:
        mode = 0o600 if secret else 0o644
        self._result.files.append(WantedFile(path=path, content=content, mode=mode, owner=owner, secret=secret))

    def _note(self, sentence: str) -> None:
        self._result.notes.append(sentence)

    def _serving(self) -> tuple[Pair, bytes]:
        """Return the extender's serving pair, and the authority that kube-scheduler must trust."""
        request = self._request
        if request.given_serving is not None:
            pair, authority = self._given(request.given_serving, ExtendedKeyUsageOID.SERVER_AUTH)
            if not serves(pair.certificate, request.names[0]):
                raise BadCertificate(
                    request.given_serving.certificate, f"is not for {request.names[0]}, which kube-scheduler calls"
                )
            return pair, authority
        signing = self._authority()
        files = request.own_directory / SERVING_CERTIFICATE, request.own_directory / SERVING_KEY
        reused = self._reused(*files, signing, ExtendedKeyUsageOID.SERVER_AUTH, request.names)
        pair = reused or mint_server(signing, request.names, self._now)
        if reused is None:
            self._note(f"a serving certificate for {request.names[0]}, valid until {end(pair)}")
        self._add(files[0], pair.chain)
        self._add(files[1], pair.key_text, secret=True)
        return pair, signing.chain

    def _client(self) -> tuple[Pair, bytes]:
        """Return kube-scheduler's client pair, and the authority that the extender must trust."""
        request = self._request
        files = request.client_directory / CLIENT_CERTIFICATE, request.client_directory / CLIENT_KEY
        if request.given_client is not None:
            pair, authority = self._given(request.given_client, ExtendedKeyUsageOID.CLIENT_AUTH)
            self._refuse_unknown_client(files[0], pair.chain, None)
            return pair, authority
        signing = self._authority()
        self._refuse_unknown_client(files[0], None, signing)
        return self._client_pair(*files, signing, CLIENT_NAME), signing.chain

    def _api_server(self, owner: tuple[int, int] | None) -> None:
        """Plan the certificate that kube-apiserver presents to the webhooks."""
        if self._is_signing_named:
            raise ConfiguratorError(
                "--api-server needs the authority of the configurator, because the extender must tell kube-apiserver "
                "from others: leave out -cert, -key and --cluster-ca, or name a certificate of your own for "
                "kube-apiserver as docs/admission.md says"
            )
        own = self._request.own_directory
        files = own / API_SERVER_CERTIFICATE, own / API_SERVER_KEY
        pair = self._client_pair(*files, self._authority(), API_SERVER)
        self._add(files[0], pair.chain)
        self._add(files[1], pair.key_text, secret=True, owner=owner)

    def _authority(self) -> Pair:
        """Return the authority that signs. If it is our own, its files are planned too."""
        if self._signing is None:
            paths = self._request.cluster_authority
            self._signing = self._own_authority() if paths is None else self._cluster_authority(*paths)
        return self._signing

    def _cluster_authority(self, certificate: Path, key: Path) -> Pair:
        pair = read_pair(certificate, read_input(certificate), key, read_input(key))
        if not pair.is_authority:
            raise BadCertificate(certificate, "is not the certificate of an authority, so it cannot sign others")
        if (problem := why_not_valid(pair.certificate, self._now)) is not None:
            raise BadCertificate(certificate, problem)
        return pair

    def _own_authority(self) -> Pair:
        directory = self._request.own_directory
        paths = directory / AUTHORITY_CERTIFICATE, directory / AUTHORITY_KEY
        certificate, key = self._read(paths[0]), self._read(paths[1])
        pair = None
        if certificate is not None and key is not None:
            pair = read_pair(paths[0], certificate.content, paths[1], key.content)
            if not pair.is_authority:
                raise BadCertificate(paths[0], "is not the certificate of an authority; move it away, and run again")
            if pair.certificate.not_valid_after_utc - self._now < RENEWAL:
                pair = None
        elif certificate is not None or key is not None:
            present, absent = paths if certificate is not None else reversed(paths)
            raise ConfiguratorError(
                f"{present} exists, {absent} does not: copy both from the machine where the configurator first ran; "
                "if a run with --undo was stopped, run that again with the same -b; or move the file away, and a new "
                "authority is made"
            )
        if pair is None:
            pair = mint_authority(self._now)
            self._note(f"an authority of our own, {AUTHORITY_NAME}, valid until {end(pair)}")
        self._add(paths[0], pair.chain)
        self._add(paths[1], pair.key_text, secret=True)
        return pair

    def _client_pair(self, certificate_file: Path, key_file: Path, signing: Pair, name: str) -> Pair:
        pair = self._reused(certificate_file, key_file, signing, ExtendedKeyUsageOID.CLIENT_AUTH, ())
        if pair is None:
            pair = mint_client(signing, self._now, name=name)
            self._note(f"a client certificate for {name}, valid until {end(pair)}")
        return pair

    def _reused(
        self,
        certificate_file: Path,
        key_file: Path,
        signing: Pair,
        usage: x509.ObjectIdentifier,
        names: Sequence[str],
    ) -> Pair | None:
        """Return the pair that an earlier run signed if it is still good for long enough, else None."""
        certificate, key = self._read(certificate_file), self._read(key_file)
        if certificate is None or key is None:
            return None
        try:
            pair = read_pair(certificate_file, certificate.content, key_file, key.content)
        except BadCertificate as bad:
            self._note(f"an existing file is replaced: {bad}")
            return None
        return pair if is_usable(pair, signing, usage, names, now=self._now) else None

    def _given(self, given: GivenPair, usage: x509.ObjectIdentifier) -> tuple[Pair, bytes]:
        """Return a given pair and the text of its authority. Raises BadCertificate if it does not fit its purpose."""
        text = read_input(given.certificate)
        pair = read_pair(given.certificate, text, given.key, read_input(given.key))
        if (problem := why_not_valid(pair.certificate, self._now)) is not None:
            raise BadCertificate(given.certificate, problem)
        if pair.is_authority:
            raise BadCertificate(given.certificate, "is the certificate of an authority, whose key can sign anything")
        if not is_for(pair.certificate, usage):
            wanted = "a server" if usage == ExtendedKeyUsageOID.SERVER_AUTH else "a client"
            raise BadCertificate(given.certificate, f"may not be used by {wanted} (extended key usage)")
        authority_text = read_input(given.authority)
        authorities = read_certificates(given.authority, authority_text)
        chain = [*read_certificates(given.certificate, text)[1:], *authorities]
        if not any(is_signed_by(pair.certificate, each) for each in chain):
            raise BadCertificate(given.certificate, f"was not signed by the authority in {given.authority}")
        if (problem := why_not_valid(authorities[0], self._now)) is not None:
            raise BadCertificate(given.authority, problem)
        return pair, authority_text

    def _refuse_unknown_client(self, path: Path, wanted: bytes | None, signing: Pair | None) -> None:
        """Refuse to replace an existing client certificate unless it is ours, or a copy of the authority's."""
        state = self._read(path)
        if state is None or state.content == wanted:
            return
        found = read_certificates(path, state.content)[0]
        if is_authority(found):
            self._note(f"{path} was an authority's own certificate, whose key can sign anything: it is replaced")
            return
        ours = common_name(found.issuer) == AUTHORITY_NAME or (
            self._is_signing_named and common_name(found.subject) == CLIENT_NAME
        )
        if not ours and (signing is None or not is_signed_by(found, signing.certificate)):
            raise ConfiguratorError(
                f"{path} is a certificate for {common_name(found.subject)!r} that the configurator did not make with "
                f"{AUTHORITY_NAME}. To keep it, give the same flags as the run that put it there (-cert and -key, "
                "--client-ca, or --cluster-ca). To replace it, move it away. To use another directory, give -cert-dir"
            )

    @property
    def _is_signing_named(self) -> bool:
        return self._request.cluster_authority is not None or self._request.given_client is not None

    def _refuse_to_drop_authority(self) -> None:
        """Refuse to replace an authority that an earlier run was given, if this run names none."""
        if self._request.cluster_authority is not None or self._request.given_serving is not None:
            return
        path = self._request.client_directory / AUTHORITY_CERTIFICATE
        if (state := self._read(path)) is None:
            return
        found = read_certificates(path, state.content)[0]
        if is_authority(found) and common_name(found.subject) != AUTHORITY_NAME:
            raise ConfiguratorError(
                f"{path} belongs to {common_name(found.subject)!r}. To keep it, give the same flags as before "
                "(--cluster-ca; -cert and -key; or --serving-cert, --serving-key and --serving-ca). To replace it, "
                f"move {path} and {CLIENT_CERTIFICATE} away"
            )

    def _refuse_replaced_authority(self, path: Path, wanted: bytes) -> None:
        state = self._read(path)
        if state is None or state.content == wanted:
            return
        found = read_certificates(path, state.content)[0]
        if not is_authority(found):
            raise ConfiguratorError(f"{path} is not an authority's certificate; move it away, and run again")


def serving_names(host: str, more: Iterable[str] = ()) -> list[str]:
    """Return the names for the serving certificate, each once. The host that kube-scheduler calls is the first.

    A Service has shorter names as well. The local names let an administrator on the machine call the extender. The
    Services of the admission webhooks are in the same namespace.
    """
    short, usual = _short_forms(host), _short_forms(SERVICE)
    webhooks = [
        f"{name}.{forms[1].partition('.')[2]}.svc" for forms in (short, usual) if forms for name in WEBHOOK_SERVICES
    ]
    names = [host, *short, SERVICE, *usual, *webhooks, *_LOCAL, *more]
    return list(dict.fromkeys(names))


def _short_forms(host: str) -> list[str]:
    name, dot, rest = host.partition(".svc")
    parts = name.split(".")
    if not dot or (rest and not rest.startswith(".")) or len(parts) != 2:
        return []
    return [f"{name}.svc", name, parts[0]]

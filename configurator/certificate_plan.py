"""Decide which certificates a run reuses and which it signs, and plan their files and the extender's Secret."""

import base64
import contextlib
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from configurator.api_server import CERTIFICATE as API_SERVER_CERTIFICATE
from configurator.api_server import KEY as API_SERVER_KEY
from configurator.api_server import PROGRAM as API_SERVER
from configurator.certificates import (
    AUTHORITY_NAME,
    CLIENT_NAME,
    RENEWAL,
    SERVER_NAME,
    Pair,
    common_name,
    end,
    is_authority,
    is_for,
    is_signed_by,
    mint_authority,
    read_certificates,
    read_pair,
    renewed,
    serves,
    why_not_valid,
)
from configurator.errors import BadCertificate, ConfiguratorError, FileTrouble
from configurator.files import Read, WantedFile, read_input
from configurator.flags import DEFAULT_SECRET, Flags, GivenPair, SecretName
from configurator.static_pod import StaticPod

AUTHORITY_CERTIFICATE = "ca.crt"
AUTHORITY_KEY = "ca.key"
SERVING_CERTIFICATE = "server.crt"
SERVING_KEY = "server.key"
SECRET = "extender-secret.yaml"  # noqa: S105 -- the name of a file
CLIENT_CERTIFICATE = "client.crt"
CLIENT_KEY = "client.key"

_WRITTEN = re.compile(rb'^metadata:\n  name: "([^"\n]+)"\n  namespace: "([^"\n]+)"\n', re.MULTILINE)

Owner = tuple[int, int] | None  # user and group as numbers; None for root

SERVICE = "gas-service.default.svc.cluster.local"
WEBHOOK_SERVICES = ("gas-admission", "gas-binding")
"""The Services by which the API server calls the admission webhooks, in the extender's namespace."""

_LOCAL = ("localhost", "127.0.0.1", "::1")


def secret_name(flags: Flags, read: Read) -> SecretName:
    """Return the name of the extender's Secret: the flag's, else the one in an earlier run's manifest."""
    written = read(flags.own_directory / SECRET)
    found = _WRITTEN.search(written.content) if written is not None else None
    with contextlib.suppress(ValueError):
        if flags.secret is None and found is not None:
            return SecretName.parse(f"{found[2].decode()}/{found[1].decode()}")
    return flags.secret or DEFAULT_SECRET


def secret_manifest(secret: SecretName, *, certificate: bytes, key: bytes, authority: bytes) -> bytes:
    """Return the manifest of the Secret. Its type is that of ``kubectl create secret tls``, since a type cannot change.

    The certificate and key are the extender's as a server; the authority signs the certificates of its clients.
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


class CertificatePlan:
    """The files of a run's certificates in the order of writing, with sentences about what is new.

    cluster_authority  certificate and key of the authority that signs; None for a separate one
    serving_authority  that signs the extender's certificate, as PEM
    """

    def __init__(self, flags: Flags, client_directory: Path, read: Read, now: datetime) -> None:
        """Read which authority signs, without planning anything.

        Raises ConfiguratorError if a flag does not fit its file. ``client_directory`` is for files that kube-scheduler
        reads: its client pair, and the authority that it trusts.
        """
        self.files: list[WantedFile] = []
        self.notes: list[str] = []
        self.serving_authority = b""
        self.cluster_authority, self._given_client = _signing(flags)
        self._flags = flags
        self._own = flags.own_directory
        self._clients = client_directory
        self._read = read
        self._now = now
        self._signing: Pair | None = None

    def make(self, names: Sequence[str], client_owner: Owner, api_server: StaticPod | None) -> None:
        """Plan the certificates.

        names         for the serving certificate; the first is the host that kube-scheduler calls
        client_owner  of the files that kube-scheduler reads
        api_server    presents a client certificate; None if it does not

        Raises BadCertificate for files that cannot be used, ConfiguratorError for files that another program made.
        """
        serving, self.serving_authority = self._serving_pair(names)
        self._refuse_to_replace_trusted()
        client_authority = self._plan_client(client_owner)
        secret = secret_name(self._flags, self._read)
        manifest = secret_manifest(secret, certificate=serving.chain, key=serving.key_text, authority=client_authority)
        self._add(self._own / SECRET, manifest, secret=True)
        self._add(self._clients / AUTHORITY_CERTIFICATE, self.serving_authority)
        if api_server is not None:
            self._plan_api_server(api_server.owner)

    def contents(self, directory: Path) -> list[bytes]:
        """Return the contents of the planned files in a directory that are not secret."""
        return [file.content for file in self.files if file.path.parent == directory and not file.secret]

    def _add(self, path: Path, content: bytes, *, secret: bool = False, owner: Owner = None) -> None:
        mode = 0o600 if secret else 0o644
        self.files.append(WantedFile(path=path, content=content, mode=mode, owner=owner, secret=secret))

    def _serving_pair(self, names: Sequence[str]) -> tuple[Pair, bytes]:
        """Return the extender's serving pair, and the authority that kube-scheduler must trust."""
        given = self._flags.given_serving
        if given is None:
            files = self._own / SERVING_CERTIFICATE, self._own / SERVING_KEY
            return self._signed_pair(*files, SERVER_NAME, names), self._authority().chain
        pair, authority = self._given(given, ExtendedKeyUsageOID.SERVER_AUTH)
        if not serves(pair.certificate, names[0]):
            raise BadCertificate(given.certificate, f"is not for {names[0]}, which kube-scheduler calls")
        return pair, authority

    def _plan_client(self, owner: Owner) -> bytes:
        """Plan kube-scheduler's client pair, and return the authority that the extender must trust."""
        files = self._clients / CLIENT_CERTIFICATE, self._clients / CLIENT_KEY
        if self._given_client is None:
            self._refuse_unknown_client(files[0], None, self._authority())
            self._signed_pair(*files, CLIENT_NAME, owner=owner)
            return self._authority().chain
        pair, authority = self._given(self._given_client, ExtendedKeyUsageOID.CLIENT_AUTH)
        self._refuse_unknown_client(files[0], pair.chain, None)
        self._add(files[0], pair.chain)
        self._add(files[1], pair.key_text, secret=True, owner=owner)
        return authority

    def _plan_api_server(self, owner: Owner) -> None:
        if self._is_signing_named:
            raise ConfiguratorError(
                "--api-server needs the authority of the configurator, because the extender must tell kube-apiserver "
                "from others: leave out -cert, -key and --cluster-ca, or name a certificate of your own for "
                "kube-apiserver as docs/admission.md says"
            )
        self._signed_pair(self._own / API_SERVER_CERTIFICATE, self._own / API_SERVER_KEY, API_SERVER, owner=owner)

    def _signed_pair(
        self, certificate_file: Path, key_file: Path, name: str, names: Sequence[str] = (), owner: Owner = None
    ) -> Pair:
        """Return an earlier run's pair if it lasts long enough, else a new one, and plan its files.

        Clients have no ``names``.
        """
        found = None
        certificate, key = self._read(certificate_file), self._read(key_file)
        if certificate is not None and key is not None:
            try:
                found = read_pair(certificate_file, certificate.content, key_file, key.content)
            except BadCertificate as bad:
                self.notes.append(f"an existing file is replaced: {bad}")
        pair = renewed(found, self._authority(), names, self._now, name=name)
        if pair is not found:
            purpose = f"serving certificate for {names[0]}" if names else f"client certificate for {name}"
            self.notes.append(f"a {purpose}, valid until {end(pair)}")
        self._add(certificate_file, pair.chain)
        self._add(key_file, pair.key_text, secret=True, owner=owner)
        return pair

    def _authority(self) -> Pair:
        """Return the authority that signs, and plan its files if it is our own."""
        if self._signing is None:
            paths = self.cluster_authority
            self._signing = self._own_authority() if paths is None else self._read_authority(*paths)
        return self._signing

    def _read_authority(self, certificate: Path, key: Path) -> Pair:
        pair = read_pair(certificate, read_input(certificate), key, read_input(key))
        if not pair.is_authority:
            raise BadCertificate(certificate, "is not the certificate of an authority, so it cannot sign others")
        if (problem := why_not_valid(pair.certificate, self._now)) is not None:
            raise BadCertificate(certificate, problem)
        return pair

    def _own_authority(self) -> Pair:
        paths = self._own / AUTHORITY_CERTIFICATE, self._own / AUTHORITY_KEY
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
            self.notes.append(f"an authority of our own, {AUTHORITY_NAME}, valid until {end(pair)}")
        self._add(paths[0], pair.chain)
        self._add(paths[1], pair.key_text, secret=True)
        return pair

    def _given(self, given: GivenPair, usage: x509.ObjectIdentifier) -> tuple[Pair, bytes]:
        """Return a given pair and its authority's text. Raises BadCertificate if it does not fit its purpose."""
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
            self.notes.append(f"{path} was an authority's own certificate, whose key can sign anything: it is replaced")
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
        return self.cluster_authority is not None or self._given_client is not None

    def _refuse_to_replace_trusted(self) -> None:
        """Refuse to replace another program's file, or an authority that an earlier run named and this one does not."""
        path = self._clients / AUTHORITY_CERTIFICATE
        state = self._read(path)
        if state is None or state.content == self.serving_authority:
            return
        found = read_certificates(path, state.content)[0]
        if not is_authority(found):
            raise ConfiguratorError(f"{path} is not an authority's certificate; move it away, and run again")
        is_named = self.cluster_authority is not None or self._flags.given_serving is not None
        if not is_named and common_name(found.subject) != AUTHORITY_NAME:
            raise ConfiguratorError(
                f"{path} belongs to {common_name(found.subject)!r}. To keep it, give the same flags as before "
                "(--cluster-ca; -cert and -key; or --serving-cert, --serving-key and --serving-ca). To replace it, "
                f"move {path} and {CLIENT_CERTIFICATE} away"
            )


def _signing(flags: Flags) -> tuple[tuple[Path, Path] | None, GivenPair | None]:
    """Return the authority to sign with, None for our own, and the given client pair, None if there is none."""
    certificate, key = flags.signing
    if flags.cluster_authority:
        for path in (certificate, key):
            if not path.exists():
                raise FileTrouble(path, "does not exist; name the cluster's authority with -cert and its key with -key")
    if not flags.is_signing_named:
        return (flags.signing if flags.cluster_authority else None), None
    if flags.cluster_authority or is_authority(read_certificates(certificate, read_input(certificate))[0]):
        return flags.signing, None
    if flags.client_authority is None:
        raise ConfiguratorError(
            f"{certificate} is a client certificate: name the authority that signed it with --client-ca"
        )
    return None, GivenPair(certificate, key, flags.client_authority)


def serving_names(host: str, more: Iterable[str] = ()) -> list[str]:
    """Return the names for the serving certificate, each once, the host that kube-scheduler calls first.

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

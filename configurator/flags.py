"""Declare the flags of ``gas-configurator``: the original's, and new ones."""

import os.path
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import urlsplit

from configurator.kubernetes_version import KubernetesVersion
from gas.daemon.flag_values import object_name, one_of
from gas.daemon.flags import CommandFlags, IgnoredFlags, UsageError, flag, read_flags, switch
from gas.values.errors import InvalidEntry
from gas.vocabularies.protocol import Vocabulary
from gas.vocabularies.selection import DEFAULT_NAMES, JOINED_HELP, KNOWN_NAMES, parse_vocabularies


class Colour(StrEnum):
    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


DEFAULT_WEBHOOKS = "gas-admission"

DEFAULT_TEMPLATE = Path("deploy/extender-configuration/scheduler-config.yaml")

DEPLOYMENT_FLAGS = IgnoredFlags(
    with_value=("gas-depl", "tas-depl"), reason="the manifests in deploy/ need no change for old releases"
)
"""Flags of the original for Kubernetes up to 1.23, where it rewrote node labels in these files."""

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_NO_BACKUP = Path("/dev/null")
_HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]{0,62})(\.[A-Za-z0-9]([-A-Za-z0-9]{0,62}))*", re.ASCII)


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


@dataclass(frozen=True, slots=True)
class GivenPair:
    """The files of a certificate that another authority signed, of its key, and of that authority."""

    certificate: Path
    key: Path
    authority: Path


def path(value: str) -> Path:
    """Parse a path and make it absolute, without ``..`` and without consulting the file system."""
    if not value or "\0" in value:
        raise ValueError("a path")
    return Path(os.path.abspath(Path(value).expanduser()))  # noqa: PTH100 -- Path.resolve would follow links


def backup_directory(value: str) -> Path | None:
    """Parse the directory of the backups. None, for /dev/null, means no backups."""
    directory = path(value)
    return None if directory == _NO_BACKUP else directory


def url(value: str) -> str:
    try:
        parts = urlsplit(value)
        good = parts.scheme == "https" and parts.hostname and is_host(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or parts.path or parts.query or parts.fragment or parts.username is not None:
        raise ValueError("https://HOST:PORT and nothing after it")
    return value


def hosts(value: str) -> tuple[str, ...]:
    """Parse a comma-separated list of DNS names and IP addresses, which may be empty. Raises InvalidEntry."""
    found = tuple(each.strip() for each in value.split(",")) if value else ()
    for each in found:
        if not is_host(each):
            raise InvalidEntry("DNS names or IP addresses with commas between them", each)
    return found


def is_host(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return len(text) <= 253 and _HOST.fullmatch(text) is not None
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags(CommandFlags):
    """The command line of ``gas-configurator``. All paths are absolute.

    ``configuration_directory``, ``certificate_directory``, ``secret`` and ``url`` are None if they were not given: what
    is in use then stays in use.
    """

    program: ClassVar[str] = "gas-configurator"
    summary: ClassVar[str] = (
        "Configures a kube-scheduler that runs as a static pod on this machine to call the extender, and makes the "
        "certificates for both."
    )
    ignored: ClassVar[tuple[IgnoredFlags, ...]] = (DEPLOYMENT_FLAGS,)

    dry_run: bool = switch(
        "dry-run",
        "Show what would be changed, and change nothing. Does not need root if the files can be read.",
        group="Preview and undo",
    )
    undo: bool = switch("undo", "Undo the last run that changed something.")
    backups: Path | None = flag(
        "b=DIR",
        backup_directory,
        "/etc/kubernetes",
        "Directory for backups; /dev/null for no backups, and then nothing can be undone.",
    )
    colour: Colour = flag(
        "color=WHEN",
        one_of(Colour),
        "auto",
        "Colours in the difference: auto (on a terminal and without NO_COLOR), always or never.",
    )

    manifest: Path = flag(
        "m=FILE",
        path,
        "/etc/kubernetes/manifests/kube-scheduler.yaml",
        "Static pod manifest of kube-scheduler.",
        group="kube-scheduler",
    )
    template: Path | None = flag(
        "f=FILE",
        path,
        None,
        "Configuration of kube-scheduler that contains the extender. The original's, with XVERSIONX, works too.",
        unset=f"{DEFAULT_TEMPLATE}, or a built-in one if that file does not exist",
    )
    configuration_directory: Path | None = flag(
        "d=DIR",
        path,
        None,
        "Directory for the configuration.",
        unset="an existing configuration is changed in place; a new one goes to /etc/kubernetes/",
    )
    kubernetes_version: KubernetesVersion | None = flag(
        "kubernetes-version=VERSION",
        KubernetesVersion.parse,
        None,
        "Release of kube-scheduler, such as 1.34.",
        unset="the tag of its image",
    )
    vocabularies: tuple[Vocabulary, ...] = flag(
        "vocabularies=NAME,…",
        parse_vocabularies,
        DEFAULT_NAMES,
        "Vocabularies of gas-extender: kube-scheduler asks it about pods with their resources, which are added to "
        f"managedResources. Known: {KNOWN_NAMES}. Other entries stay. {JOINED_HELP}",
        joined=True,
    )
    url: str | None = flag(
        "url=URL",
        url,
        None,
        "URL at which kube-scheduler calls the extender: https://HOST:PORT.",
        unset="as in -f or the existing configuration",
    )

    certificate_directory: Path | None = flag(
        "cert-dir=DIR",
        path,
        None,
        "Directory for kube-scheduler's client certificate and key.",
        group="Certificates",
        unset="the directory in use, else /etc/certs/",
    )
    own_directory: Path = flag(
        "pki-dir=DIR",
        path,
        "/etc/kubernetes/pki/gas",
        "Directory for the certificate authority, the serving certificate and the Secret's manifest.",
    )
    cluster_authority: bool = switch(
        "cluster-ca", "Sign with the cluster's certificate authority instead of a separate one."
    )
    signing_certificate: Path = flag(
        "cert=FILE",
        path,
        "/etc/kubernetes/pki/ca.crt",
        "The certificate authority for --cluster-ca, or the client certificate that kube-scheduler is to use. An "
        "authority implies --cluster-ca.",
    )
    signing_key: Path = flag("key=FILE", path, "/etc/kubernetes/pki/ca.key", "Private key of --cert.")
    client_authority: Path | None = flag(
        "client-ca=FILE", path, None, "The authority that signed the client certificate in --cert."
    )
    serving_certificate: Path | None = flag(
        "serving-cert=FILE",
        path,
        None,
        "Serving certificate for the extender. Needs --serving-key and --serving-ca.",
        unset="one is signed",
    )
    serving_key: Path | None = flag("serving-key=FILE", path, None, "Private key of --serving-cert.")
    serving_authority: Path | None = flag("serving-ca=FILE", path, None, "The authority that signed --serving-cert.")
    more_names: tuple[str, ...] = flag(
        "san=HOST,…", hosts, "", "More host names and addresses for the serving certificate.", unset="none"
    )

    secret: SecretName | None = flag(
        "secret=NAME",
        SecretName.parse,
        None,
        "Namespace and name of the Secret with the extender's certificates.",
        group="The Secret",
        unset=f"as in an earlier run, else {DEFAULT_SECRET}",
    )
    apply_secret: bool = switch("apply-secret", "Also apply the Secret to the cluster.")
    kubeconfig: Path = flag("kubeconfig=FILE", path, "/etc/kubernetes/admin.conf", "Kubeconfig for --apply-secret.")

    webhooks: str = flag(
        "webhooks=NAME",
        object_name,
        DEFAULT_WEBHOOKS,
        "Name of the webhook configurations. If they exist, --apply-secret lets the API server trust the authority of "
        "the extender's certificate there.",
        group="Admission webhooks",
    )
    api_server: bool = switch(
        "api-server",
        "Also let kube-apiserver present a client certificate to the webhooks, with kube-apiserver.yaml beside -m. "
        "Later runs renew it without this flag.",
    )

    @property
    def api_server_manifest(self) -> Path:
        return self.manifest.with_name("kube-apiserver.yaml")

    @property
    def signing(self) -> tuple[Path, Path]:
        return self.signing_certificate, self.signing_key

    @property
    def is_signing_named(self) -> bool:
        return "cert" in self.given

    @property
    def given_serving(self) -> GivenPair | None:
        """The given serving certificate that another authority signed."""
        if self.serving_certificate is None or self.serving_key is None or self.serving_authority is None:
            return None
        return GivenPair(self.serving_certificate, self.serving_key, self.serving_authority)


def parse_flags(argv: Sequence[str]) -> Flags:
    """Parse the arguments after the program's name. Raises UsageError."""
    flags = read_flags(Flags, argv)
    if ("cert" in flags.given) != ("key" in flags.given):
        raise UsageError("-cert and -key belong together: name both, or neither")
    if flags.given_serving is None and flags.given & {"serving-cert", "serving-key", "serving-ca"}:
        raise UsageError("--serving-cert, --serving-key and --serving-ca belong together: name all three, or none")
    if flags.client_authority is not None and not flags.is_signing_named:
        raise UsageError("--client-ca is the authority of the client certificate in -cert, which is missing")
    if flags.client_authority is not None and flags.cluster_authority:
        raise UsageError(
            "--cluster-ca signs a client certificate, and --client-ca is for a given one: name one of them"
        )
    if flags.undo and (flags.dry_run or flags.apply_secret):
        raise UsageError("--undo cannot be combined with --dry-run or --apply-secret")
    if flags.undo and flags.backups is None:
        raise UsageError("--undo needs the directory of the backups in -b")
    return flags

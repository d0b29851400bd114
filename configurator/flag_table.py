"""Every flag of ``gas-configurator`` with its default and its line of help."""

from __future__ import annotations

import os.path
import re
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from configurator.extender_secret import DEFAULT, SecretName
from configurator.kubernetes_version import KubernetesVersion
from gas.daemon.go_flags import GoFlag, boolean

Colour = Literal["auto", "always", "never"]

NO_BACKUP = Path("/dev/null")
DEFAULT_TEMPLATE = Path("deploy/extender-configuration/scheduler-config.yaml")

_HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]{0,62})(\.[A-Za-z0-9]([-A-Za-z0-9]{0,62}))*", re.ASCII)


def path(value: str) -> Path:
    """Absolute and without ``..``; nothing is looked up."""
    if not value or "\0" in value:
        raise ValueError("a path")
    return Path(os.path.abspath(Path(value).expanduser()))  # noqa: PTH100 -- Path.resolve would follow links


def url(value: str) -> str:
    """Where kube-scheduler calls the extender."""
    try:
        parts = urlsplit(value)
        good = parts.scheme == "https" and parts.hostname and is_host(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or parts.path or parts.query or parts.fragment or parts.username is not None:
        raise ValueError("https://HOST:PORT and nothing behind it")
    return value


def hosts(value: str) -> tuple[str, ...]:
    """Names and addresses with commas between them."""
    found = tuple(each.strip() for each in value.split(","))
    if not all(is_host(each) for each in found):
        raise ValueError("DNS names or IP addresses with commas between them")
    return found


def colour(value: str) -> Colour:
    found: dict[str, Colour] = {"auto": "auto", "always": "always", "never": "never"}
    if value in found:
        return found[value]
    raise ValueError("auto, always or never")


def is_host(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return len(text) <= 253 and _HOST.fullmatch(text) is not None
    return True


FLAG_GROUPS = {
    "Looking and going back": (
        GoFlag("dry-run", boolean, False, "", "show what would be changed, and change nothing (false)"),
        GoFlag("undo", boolean, False, "", "bring back what was before the last run that changed something (false)"),
        GoFlag("b", path, Path("/etc/kubernetes"), "DIR", "where backups go; /dev/null for none (/etc/kubernetes/)"),
        GoFlag("color", colour, "auto", "WHEN", "colours in the difference: auto, always or never (auto)"),
    ),
    "kube-scheduler": (
        GoFlag(
            "m",
            path,
            Path("/etc/kubernetes/manifests/kube-scheduler.yaml"),
            "FILE",
            "kube-scheduler's static pod manifest (/etc/kubernetes/manifests/kube-scheduler.yaml)",
        ),
        GoFlag(
            "f",
            path,
            None,
            "FILE",
            "kube-scheduler's configuration with the extender in it "
            f"({DEFAULT_TEMPLATE}, and where that is not there, one that is built in)",
        ),
        GoFlag(
            "d",
            path,
            None,
            "DIR",
            "where the configuration goes; without this flag, one that kube-scheduler has already is changed in its "
            "place (/etc/kubernetes/)",
        ),
        GoFlag(
            "kubernetes-version",
            KubernetesVersion.parse,
            None,
            "VERSION",
            "kube-scheduler's release, such as 1.34 (what the tag of its image says)",
        ),
        GoFlag("url", url, None, "URL", "where kube-scheduler calls the extender (what -f or the configuration says)"),
    ),
    "Certificates": (
        GoFlag(
            "cert-dir",
            path,
            None,
            "DIR",
            "where kube-scheduler's client certificate and key go (the directory in use, else /etc/certs/)",
        ),
        GoFlag(
            "pki-dir",
            path,
            Path("/etc/kubernetes/pki/gas"),
            "DIR",
            "where the authority, the serving certificate and the Secret's manifest go (/etc/kubernetes/pki/gas)",
        ),
        GoFlag(
            "cluster-ca", boolean, False, "", "sign with the cluster's authority, instead of a small own one (false)"
        ),
        GoFlag(
            "cert",
            path,
            Path("/etc/kubernetes/pki/ca.crt"),
            "FILE",
            "the authority for --cluster-ca, which an authority named here implies; or the client certificate to use "
            "(/etc/kubernetes/pki/ca.crt)",
        ),
        GoFlag(
            "key", path, Path("/etc/kubernetes/pki/ca.key"), "FILE", "private key of -cert (/etc/kubernetes/pki/ca.key)"
        ),
        GoFlag("client-ca", path, None, "FILE", "the authority that signed the client certificate of -cert"),
        GoFlag("serving-cert", path, None, "FILE", "a certificate for the extender to serve with (one is signed)"),
        GoFlag("serving-key", path, None, "FILE", "private key of --serving-cert"),
        GoFlag("serving-ca", path, None, "FILE", "the authority that signed --serving-cert"),
        GoFlag("san", hosts, (), "HOST,…", "further names for the serving certificate (none)"),
    ),
    "The Secret": (
        GoFlag(
            "secret",
            SecretName.parse,
            None,
            "NAME",
            "namespace and name of the Secret with the extender's certificates (what an earlier run wrote, else "
            f"{DEFAULT})",
        ),
        GoFlag("apply-secret", boolean, False, "", "also put the Secret into the cluster (false)"),
        GoFlag(
            "kubeconfig",
            path,
            Path("/etc/kubernetes/admin.conf"),
            "FILE",
            "how --apply-secret reaches the cluster (/etc/kubernetes/admin.conf)",
        ),
    ),
    "Help": (
        GoFlag("version", boolean, False, "", "print the version and exit"),
        GoFlag("help", boolean, False, "", "print this text and exit; also -h"),
    ),
}

DEPLOYMENT_FLAGS = ("gas-depl", "tas-depl")
"""Of the original, for Kubernetes up to 1.23: it rewrote node labels in these files. Accepted, and without effect."""

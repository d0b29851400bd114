"""The command line of ``gas-configurator``: the original's flags in Go's spelling, and ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from configurator.certificate_plan import GivenPair
from configurator.extender_secret import SecretName
from configurator.flag_table import DEPLOYMENT_FLAGS, FLAG_GROUPS, NO_BACKUP, Colour
from configurator.kubernetes_version import KubernetesVersion
from gas.daemon.flag_values import text
from gas.daemon.go_flags import GoFlag, UsageError, boolean, describe_flags, read_go_flags

_TABLE = (
    *(flag for group in FLAG_GROUPS.values() for flag in group),
    *(GoFlag(name, text, "", "FILE", "") for name in DEPLOYMENT_FLAGS),
    GoFlag("h", boolean, False, "", ""),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What the command line asks for.

    backups               directory; None: no backups
    template              None: the default
    configuration_directory, certificate_directory, secret   None: not named, so what is in use stays
    signing               certificate and key that were named with -cert and -key, or the defaults of both
    is_signing_named      whether -cert and -key were named
    given_serving         a serving pair that somebody else signed
    warnings              sentences about flags that are not obeyed
    """

    dry_run: bool
    undo: bool
    backups: Path | None
    colour: Colour
    manifest: Path
    template: Path | None
    configuration_directory: Path | None
    kubernetes_version: KubernetesVersion | None
    url: str | None
    certificate_directory: Path | None
    own_directory: Path
    cluster_authority: bool
    signing: tuple[Path, Path]
    is_signing_named: bool
    client_authority: Path | None
    given_serving: GivenPair | None
    more_names: tuple[str, ...]
    secret: SecretName | None
    apply_secret: bool
    kubeconfig: Path
    show_version: bool
    show_help: bool
    warnings: tuple[str, ...]


def parse_flags(argv: Sequence[str]) -> Flags:
    """Raises UsageError."""
    values, given = read_go_flags(argv, _TABLE)
    if ("cert" in given) != ("key" in given):
        raise UsageError("-cert and -key belong together: name both, or neither")
    serving = [values[name] for name in ("serving-cert", "serving-key", "serving-ca")]
    if any(serving) and not all(serving):
        raise UsageError("--serving-cert, --serving-key and --serving-ca belong together: name all three, or none")
    if values["client-ca"] and "cert" not in given:
        raise UsageError("--client-ca is the authority of the client certificate of -cert, which is not named")
    if values["client-ca"] and values["cluster-ca"]:
        raise UsageError("--cluster-ca signs a client certificate, and --client-ca is for one that is given: name one")
    if values["undo"] and (values["dry-run"] or values["apply-secret"]):
        raise UsageError("--undo goes with neither --dry-run nor --apply-secret")
    if values["undo"] and values["b"] == NO_BACKUP:
        raise UsageError("--undo needs the directory of the backups in -b")
    return Flags(
        dry_run=values["dry-run"],
        undo=values["undo"],
        backups=None if values["b"] == NO_BACKUP else values["b"],
        colour=values["color"],
        manifest=values["m"],
        template=values["f"],
        configuration_directory=values["d"],
        kubernetes_version=values["kubernetes-version"],
        url=values["url"],
        certificate_directory=values["cert-dir"],
        own_directory=values["pki-dir"],
        cluster_authority=values["cluster-ca"],
        signing=(values["cert"], values["key"]),
        is_signing_named="cert" in given,
        client_authority=values["client-ca"],
        given_serving=GivenPair(*serving) if all(serving) else None,
        more_names=values["san"],
        secret=values["secret"],
        apply_secret=values["apply-secret"],
        kubeconfig=values["kubeconfig"],
        show_version=values["version"],
        show_help=values["help"] or values["h"],
        warnings=tuple(
            f"flag --{name} has no effect: the manifests in deploy/ need no change for old releases"
            for name in DEPLOYMENT_FLAGS
            if name in given
        ),
    )


def help_text() -> str:
    """What --help prints."""
    return (
        "Usage: gas-configurator [flags]\n\n"
        "Tells a kube-scheduler that is a static pod of this machine of the extender, with certificates for both.\n"
        "Flags take one dash or two, and =VALUE or a VALUE of their own: -dry-run, -m FILE, --cert-dir=DIR.\n"
        f"{describe_flags(FLAG_GROUPS)}\n"
    )


def own_version() -> str:
    """The version of the installed package."""
    return version("gas")

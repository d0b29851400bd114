"""The command line of ``gas-extender``: the original's flags in Go's spelling, and ours."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from gas.daemon.go_flags import GoFlag, boolean, describe_flags, read_go_flags
from gas.daemon.klog_flags import KLOG_FLAGS, ignored_klog_flags
from gas.extender.flag_table import FLAG_GROUPS

SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Where a pod finds the name of its own namespace."""

DEFAULT_QPS = 5.0
DEFAULT_BURST = 10
MOST_REQUESTS = 1000
"""The original's defaults of ``--qps`` and ``--burst``, and its cap of both."""

_TABLE = (
    *(flag for group in FLAG_GROUPS.values() for flag in group),
    GoFlag("h", boolean, False, "", ""),
    *KLOG_FLAGS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What the command line asks for.

    kube_config         a kubeconfig's path when --kubeConfig was given, else None
    port, metrics_port  0 is any free one
    bind_address, metrics_address   an IP address; empty is every address of the machine, IPv4 and IPv6
    cert, key, cacert   PEM files: the serving pair, and the authorities of clients
    allowed_names       names of the clients that may call; empty is every client with a verified certificate
    balanced_resource   a resource name without prefix, or None
    search_steps        most steps of one search for cards, None for the built-in limit
    qps, burst          requests to the API server a second and at once; both None for no limit, else both numbers
    verbosity           klog's -v
    shutdown_timeout    seconds
    show_version, show_help   print that, and exit with 0
    warnings            sentences to log once logging is set up: flags that were given and are not obeyed
    """

    kube_config: str | None
    port: int
    bind_address: str
    metrics_port: int
    metrics_address: str
    cert: Path
    key: Path
    cacert: Path
    allowed_names: frozenset[str]
    max_request_bytes: int
    shutdown_timeout: float
    allowlist: bool
    denylist: bool
    balanced_resource: str | None
    search_steps: int | None
    qps: float | None
    burst: int | None
    leader_elect: bool
    lease_namespace: str
    lease_name: str
    verbosity: int
    log_format: Literal["text", "json"]
    show_version: bool
    show_help: bool
    warnings: tuple[str, ...]


def parse_flags(
    argv: Sequence[str],
    *,
    environ: Mapping[str, str] = os.environ,
    service_account_namespace: Path = SERVICE_ACCOUNT_NAMESPACE,
) -> Flags:
    """The arguments after the program's name as Flags. Raises UsageError.

    ``environ`` and ``service_account_namespace`` give the default of --lease-namespace.
    """
    values, given = read_go_flags(argv, _TABLE)
    qps, burst, warnings = _request_limit(values["qps"], values["burst"])
    warnings += ignored_klog_flags(given)
    return Flags(
        kube_config=values["kubeConfig"] or None,
        port=values["port"],
        bind_address=values["bind-address"],
        metrics_port=values["metrics-port"],
        metrics_address=values["metrics-address"],
        cert=values["cert"],
        key=values["key"],
        cacert=values["cacert"],
        allowed_names=values["allowed-names"],
        max_request_bytes=values["max-request-bytes"],
        shutdown_timeout=values["shutdown-timeout"],
        allowlist=values["enableAllowlist"],
        denylist=values["enableDenylist"],
        balanced_resource=values["balancedResource"] or None,
        search_steps=values["search-steps"],
        qps=qps,
        burst=burst,
        leader_elect=values["leader-elect"],
        lease_namespace=values["lease-namespace"] or _own_namespace(environ, service_account_namespace),
        lease_name=values["lease-name"] or "gas-extender",
        verbosity=values["v"],
        log_format=values["log-format"],
        show_version=values["version"],
        show_help=values["help"] or values["h"],
        warnings=tuple(warnings),
    )


def help_text() -> str:
    """What --help prints."""
    return (
        "Usage: gas-extender [flags]\n\n"
        "Books GPUs per card, tells kube-scheduler which nodes have room, and binds pods to cards.\n"
        "Flags take one dash or two, and =VALUE or a VALUE of their own: -v=4, --port 9001.\n"
        f"{describe_flags(FLAG_GROUPS)}"
    )


def own_version() -> str:
    """The version of the installed package."""
    return version("gas")


def _request_limit(qps: float | None, burst: int | None) -> tuple[float | None, int | None, list[str]]:
    if qps is None and burst is None:
        return None, None, []
    asked = {"qps": DEFAULT_QPS if qps is None else qps, "burst": DEFAULT_BURST if burst is None else burst}
    warnings = [
        f"flag --{name}: {number:g} is over the most there is, using {MOST_REQUESTS}"
        for name, number in asked.items()
        if number > MOST_REQUESTS
    ]
    return min(asked["qps"], MOST_REQUESTS), int(min(asked["burst"], MOST_REQUESTS)), warnings


def _own_namespace(environ: Mapping[str, str], service_account_namespace: Path) -> str:
    if named := environ.get("POD_NAMESPACE"):
        return named
    try:
        return service_account_namespace.read_text(encoding="utf-8").strip() or "default"
    except (OSError, UnicodeDecodeError):  # not in a pod, or one without a token
        return "default"

"""The flags of ``gas-extender``: the original's, and those that are new here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from gas.daemon import flag_values as values
from gas.daemon.flags import DaemonFlags, UsageError, flag, read_flags, switch
from gas.placement.node_score import NODE_SCORES, NodeScore, parse_node_score
from gas.placement.order import CARD_ORDERS, DEFAULT_ORDER, CardOrder, LeastUsed, parse_card_order
from gas.placement.place import DEFAULT_STEP_LIMIT
from gas.values.amounts import MemoryUnit
from gas.values.errors import InvalidValue
from gas.vocabularies.known import Settings, aliyun_unit_flag, unused_settings, vocabularies_flag, with_settings
from gas.vocabularies.protocol import Vocabulary

SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""The file in which a pod finds the name of its own namespace."""

DEFAULT_QPS = 5.0
DEFAULT_BURST = 10
MOST_REQUESTS = 1000
"""The original's defaults of ``--qps`` and ``--burst``, and its upper limit of both."""

DEFAULT_LEASE_NAME = "gas-extender"


_PREFIX_HINT = ", with a RESOURCE named without its prefix, such as millicores"


def _card_order(text: str) -> CardOrder | None:
    """Parse an order of cards; the empty text gives None, as if the flag were not given."""
    if not text:
        return None
    try:
        return parse_card_order(text)
    except InvalidValue:
        raise ValueError(f"{CARD_ORDERS}{_PREFIX_HINT if '/' in text else ''}") from None


def _node_score(text: str) -> NodeScore:
    try:
        return parse_node_score(text)
    except InvalidValue:
        raise ValueError(NODE_SCORES) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags(DaemonFlags):
    """The command line of ``gas-extender``. `parse_flags` fills in the defaults that depend on other flags or the pod.

    Sizes are in bytes and times in seconds. ``qps`` and ``burst`` are both None (no limit) or both numbers. Empty
    ``allowed_names`` and ``admission_client_names`` allow every client with a verified certificate.
    """

    program: ClassVar[str] = "gas-extender"
    summary: ClassVar[str] = (
        "Keeps track of the GPUs that pods hold, card by card. Filters nodes for kube-scheduler by the cards that a "
        "pod needs, and binds the pod to the chosen cards."
    )

    port: int = flag(
        "port",
        values.port,
        "9001",
        "N",
        "Port for filter and bind requests; 0 picks a free port.",
        group="Serving kube-scheduler (TLS)",
    )
    bind_address: str = flag(
        "bind-address",
        values.address,
        "",
        "IP",
        "Address that --port listens on.",
        unset="every address, IPv4 and IPv6",
    )
    cert: Path = flag(
        "cert", values.file, "/gas/cert/tls.crt", "FILE", "Serving certificate, followed by its chain (PEM)."
    )
    key: Path = flag("key", values.file, "/gas/cert/tls.key", "FILE", "Private key of --cert, not encrypted (PEM).")
    cacert: Path = flag(
        "cacert",
        values.file,
        "/etc/kubernetes/pki/ca.crt",
        "FILE",
        "Certificate authorities that must have signed a client's certificate (PEM).",
    )
    allowed_names: frozenset[str] = flag(
        "allowed-names",
        values.names,
        "",
        "NAME,…",
        "Common names or DNS names of the clients that may call. Set it if --cacert is the cluster's authority, which "
        "also signs the certificate of every kubelet.",
        unset="every client with a verified certificate",
    )
    max_request_bytes: int = flag(
        "max-request-bytes", values.positive, "67108864", "N", "Size of the largest request body that is accepted."
    )
    shutdown_timeout: float = flag(
        "shutdown-timeout",
        values.duration,
        "20s",
        "TIME",
        "How long requests in progress may take after SIGTERM, such as 20s, 1.5m or 500ms.",
    )

    metrics_port: int = flag(
        "metrics-port",
        values.port,
        "9002",
        "N",
        "Port of /healthz, /readyz, /metrics and /debug; 0 picks a free port.",
        group="Health and metrics (plain HTTP)",
    )

    page_port: int = flag(
        "page-port",
        values.port,
        "0",
        "N",
        "Port of the page that shows every card and pod in a browser; 0 switches it off.",
        group="Page (plain HTTP)",
    )
    page_address: str = flag(
        "page-address",
        values.address,
        "127.0.0.1",
        "IP",
        "Address that --page-port listens on. Whoever reaches it sees all nodes and GPU pods: leave it on loopback, or "
        "put an authenticating proxy in front of it.",
    )
    page_hosts: frozenset[str] = flag(
        "page-hosts",
        values.names,
        "",
        "NAME,…",
        "Names in the address bar under which the page is opened, for example behind a proxy.",
        unset="only localhost and IP addresses",
    )

    admission_port: int = flag(
        "admission-port",
        values.port,
        "0",
        "N",
        "Port for the admission webhooks, which the API server calls; 0 switches them off.",
        group="Admission webhooks (TLS)",
    )
    admission_certificate: Path | None = flag(
        "admission-certificate",
        values.file_or_none,
        None,
        "FILE",
        "Serving certificate of --admission-port, followed by its chain (PEM).",
        unset="that of --cert",
    )
    admission_key: Path | None = flag(
        "admission-key",
        values.file_or_none,
        None,
        "FILE",
        "Private key of --admission-certificate, not encrypted (PEM).",
        unset="that of --key",
    )
    admission_client_ca: Path | None = flag(
        "admission-client-ca",
        values.file_or_none,
        None,
        "FILE",
        "Certificate authorities that must have signed the API server's client certificate (PEM).",
        unset="callers need no certificate",
    )
    admission_client_names: frozenset[str] = flag(
        "admission-client-names",
        values.names,
        "",
        "NAME,…",
        "Common names or DNS names of the clients that may call the webhooks. Set it if the authorities of "
        "--admission-client-ca sign certificates of others as well.",
        unset="every client with a certificate by --admission-client-ca",
    )
    admission_scheduler_name: str | None = flag(
        "admission-scheduler-name",
        values.text_or_none,
        None,
        "NAME",
        "Scheduler of new GPU pods (schedulerName) that have the default one; needs the webhook complete.pods.gas.",
        unset="schedulerName stays as it is",
    )

    vocabularies: tuple[Vocabulary, ...] = vocabularies_flag("gas-plugin")
    aliyun_unit: MemoryUnit = aliyun_unit_flag("gas-plugin")

    sharepods: bool = switch(
        "sharepods",
        "Make the pods of SharePods (kubeshare.nthu/v1), and copy their status and metadata, with the vocabulary "
        "kubeshare.",
    )

    allowlist: bool = switch(
        "enableAllowlist",
        "Obey the pod annotation gas-allow, and gas-card-name where it chooses a card.",
        group="Choosing cards",
    )
    denylist: bool = switch("enableDenylist", "Obey the pod annotation gas-deny.")
    balanced_resource: str | None = flag(
        "balancedResource",
        values.text_or_none,
        None,
        "NAME",
        "The same as --card-order=least-used=NAME, unless --card-order is given as well. Give the name without "
        "gpu.intel.com/, such as millicores.",
        unset="the order is that of --card-order",
    )
    card_order: CardOrder | None = flag(
        "card-order",
        _card_order,
        None,
        "ORDER",
        f"Order in which the cards of a node are tried, one of {CARD_ORDERS}; a RESOURCE is named without "
        "gpu.intel.com/. The pod annotation gas-card-order overrides it.",
        unset="natural, or that of --balancedResource",
    )
    search_steps: int | None = flag(
        "search-steps",
        values.positive,
        None,
        "N",
        "Maximum number of steps of one search for cards.",
        unset=str(DEFAULT_STEP_LIMIT),
    )

    preemption: bool = switch(
        "preemption",
        "Serve the verb preempt, by which kube-scheduler evicts the pods that hold the cards of a pod of higher "
        "priority. Also counts the CPU, memory and pod slots of nodes, and watches all pods and PodDisruptionBudgets.",
        group="Preemption",
    )
    node_score: NodeScore = flag(
        "node-score",
        _node_score,
        "none",
        "POLICY",
        f"How nodes are scored for kube-scheduler, one of {NODE_SCORES}. With none there is no prioritize verb; "
        "otherwise the pod annotation gas-node-score overrides the policy.",
        group="Scoring nodes",
    )

    qps: float | None = flag(
        "qps",
        values.rate,
        None,
        "N",
        "Maximum number of requests to the API server per second, up to 1000.",
        group="Kubernetes API",
        unset="no limit; 5 if only --burst is given",
    )
    burst: int | None = flag(
        "burst",
        values.positive,
        None,
        "N",
        "Maximum number of requests at once under --qps, up to 1000.",
        unset="no limit; 10 if only --qps is given",
    )
    leader_elect: bool = switch(
        "leader-elect", "Elect a leader by a Lease. Required with more than one replica; only the leader decides."
    )
    lease_namespace: str = flag(
        "lease-namespace",
        values.object_name,
        "",
        "NAME",
        "Namespace of the Lease.",
        unset="$POD_NAMESPACE, else the service account's, else default",
    )
    lease_name: str = flag("lease-name", values.object_name, DEFAULT_LEASE_NAME, "NAME", "Name of the Lease.")

    @property
    def order_of_cards(self) -> CardOrder:
        """The order for pods that do not choose one."""
        if self.card_order is not None:
            return self.card_order
        return LeastUsed(self.balanced_resource) if self.balanced_resource else DEFAULT_ORDER


def parse_flags(
    argv: Sequence[str],
    *,
    environ: Mapping[str, str] = os.environ,
    service_account_namespace: Path = SERVICE_ACCOUNT_NAMESPACE,
) -> Flags:
    """Parse the arguments after the program's name. Raises UsageError.

    ``environ`` and ``service_account_namespace`` give the default of --lease-namespace.
    """
    flags = read_flags(Flags, argv)
    if flags.admission_client_names and flags.admission_client_ca is None:
        raise UsageError(
            "flag --admission-client-names: without --admission-client-ca callers need no certificate, so they have no"
            " name; set it as well"
        )
    qps, burst, warnings = _request_limit(flags.qps, flags.burst)
    if balanced := flags.balanced_resource:
        if flags.order_of_cards != LeastUsed(balanced):
            warnings.append("flag --balancedResource: ignored, because --card-order is given as well")
        elif "/" in balanced:
            name = balanced.rpartition("/")[2] or "millicores"
            warnings.append(
                f"flag --balancedResource: no card has a resource named {balanced[:80]!r}, so all cards count as"
                f" equally used; leave the prefix out, as in --balancedResource={name[:80]}"
            )
    warnings += _without_effect(flags)
    return replace(
        flags,
        qps=qps,
        burst=burst,
        lease_namespace=flags.lease_namespace or _own_namespace(environ, service_account_namespace),
        lease_name=flags.lease_name or DEFAULT_LEASE_NAME,
        sharepods=flags.sharepods and any(each.name == "kubeshare" for each in flags.vocabularies),
        vocabularies=with_settings(flags.vocabularies, Settings(aliyun_unit=flags.aliyun_unit)),
        warnings=(*warnings, *unused_settings(flags.given, flags.vocabularies), *flags.warnings),
    )


def _without_effect(flags: Flags) -> list[str]:
    """Return a warning for each part of the extender that is off although its flags are given."""
    parts = (
        ("page-port", flags.page_port > 0, "page-"),
        ("admission-port", flags.admission_port > 0, "admission-"),
        ("leader-elect", flags.leader_elect, "lease-"),
    )
    return [
        f"ignored: {', '.join(ignored)}; set --{switched} as well"
        for switched, is_on, prefix in parts
        if not is_on
        and (ignored := [f"--{each}" for each in sorted(flags.given - {switched}) if each.startswith(prefix)])
    ]


def _request_limit(qps: float | None, burst: int | None) -> tuple[float | None, int | None, list[str]]:
    if qps is None and burst is None:
        return None, None, []
    asked = {"qps": DEFAULT_QPS if qps is None else qps, "burst": DEFAULT_BURST if burst is None else burst}
    warnings = [
        f"flag --{name}: {number:g} is over the maximum, using {MOST_REQUESTS}"
        for name, number in asked.items()
        if number > MOST_REQUESTS
    ]
    return min(asked["qps"], MOST_REQUESTS), int(min(asked["burst"], MOST_REQUESTS)), warnings


def _own_namespace(environ: Mapping[str, str], service_account_namespace: Path) -> str:
    if named := environ.get("POD_NAMESPACE"):
        return named
    try:
        return service_account_namespace.read_text(encoding="utf-8").strip() or "default"
    except (OSError, UnicodeDecodeError):  # not in a pod, or in one without a token
        return "default"

"""The flags of the core of ``gas-extender``."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from gas.daemon import flag_values as values
from gas.daemon.flags import IgnoredFlags, MeasuredDaemonFlags, flag, switch
from gas.placement.order import CARD_ORDERS, DEFAULT_ORDER, CardOrder, LeastUsed, parse_card_order
from gas.placement.place import DEFAULT_STEP_LIMIT
from gas.values.errors import InvalidValue
from gas.vocabularies.protocol import Vocabulary
from gas.vocabularies.selection import vocabularies_flag

PAGE_FLAGS = IgnoredFlags(
    with_value=("page-port", "page-address", "page-hosts"),
    reason="the program gas-page serves the page, in a container of its own, see docs/page.md",
)
"""The flags of ``gas-page``, which the extender had when it started the page itself."""

_PREFIX_HINT = ", with a RESOURCE named without its prefix, such as millicores"


def _card_order(text: str) -> CardOrder | None:
    """Parse an order of cards; the empty text gives None, as if the flag were not given."""
    if not text:
        return None
    try:
        return parse_card_order(text)
    except InvalidValue:
        raise ValueError(f"{CARD_ORDERS}{_PREFIX_HINT if '/' in text else ''}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags(MeasuredDaemonFlags):
    """The flags of the core. `gas.extender.command_line` adds those of the parts.

    Sizes are in bytes and times in seconds. ``qps`` and ``burst`` are both None (no limit) or both numbers. Empty
    ``allowed_names`` allow every client with a verified certificate.
    """

    program: ClassVar[str] = "gas-extender"
    summary: ClassVar[str] = (
        "Keeps track of the GPUs that pods hold, card by card. Filters nodes for kube-scheduler by the cards that a "
        "pod needs, and binds the pod to the chosen cards."
    )
    ignored: ClassVar[tuple[IgnoredFlags, ...]] = (*MeasuredDaemonFlags.ignored, PAGE_FLAGS)

    port: int = flag(
        "port=N",
        values.port,
        "9001",
        "Port for filter and bind requests; 0 picks a free port.",
        group="Serving kube-scheduler (TLS)",
    )
    bind_address: str = flag(
        "bind-address=IP", values.address, "", "Address that --port listens on.", unset="every address, IPv4 and IPv6"
    )
    cert: Path = flag(
        "cert=FILE", values.file, "/gas/cert/tls.crt", "Serving certificate, followed by its chain (PEM)."
    )
    key: Path = flag("key=FILE", values.file, "/gas/cert/tls.key", "Private key of --cert, not encrypted (PEM).")
    cacert: Path = flag(
        "cacert=FILE",
        values.file,
        "/etc/kubernetes/pki/ca.crt",
        "Certificate authorities that must have signed a client's certificate (PEM).",
    )
    allowed_names: frozenset[str] = flag(
        "allowed-names=NAME,…",
        values.names,
        "",
        "Common names or DNS names of the clients that may call. Set it if --cacert is the cluster's authority, which "
        "also signs the certificate of every kubelet.",
        unset="every client with a verified certificate",
    )
    max_request_bytes: int = flag(
        "max-request-bytes=N", values.positive, "67108864", "Size of the largest request body that is accepted."
    )
    shutdown_timeout: float = flag(
        "shutdown-timeout=TIME",
        values.duration,
        "20s",
        "How long requests in progress may take after SIGTERM, such as 20s, 1.5m or 500ms.",
    )

    metrics_port: int = flag(
        "metrics-port=N",
        values.port,
        "9002",
        "Port of /healthz, /readyz, /metrics and /debug; 0 picks a free port.",
        group="Health and metrics (plain HTTP)",
    )

    vocabularies: tuple[Vocabulary, ...] = vocabularies_flag("gas-plugin")

    allowlist: bool = switch(
        "enableAllowlist",
        "Obey the pod annotation gas-allow, and gas-card-name where it chooses a card.",
        group="Choosing cards",
    )
    denylist: bool = switch("enableDenylist", "Obey the pod annotation gas-deny.")
    balanced_resource: str | None = flag(
        "balancedResource=NAME",
        values.text_or_none,
        None,
        "The same as --card-order=least-used=NAME, unless --card-order is given as well. Give the name without "
        "gpu.intel.com/, such as millicores.",
        unset="the order is that of --card-order",
    )
    card_order: CardOrder | None = flag(
        "card-order=ORDER",
        _card_order,
        None,
        f"Order in which the cards of a node are tried, one of {CARD_ORDERS.replace('|', ', ')}; a RESOURCE is named "
        "without gpu.intel.com/. The pod annotation gas-card-order overrides it.",
        unset="natural, or that of --balancedResource; pods in Koordinator's and HAMi's words are spread over cards",
    )
    order_for_all: bool = switch(
        "card-order-for-all", "That order also for the words of Aliyun and KubeShare, which have an order of their own."
    )
    card_near: bool = switch(
        "card-near",
        "After the first card of a pod, try near cards first. The pod annotation gas-card-near overrides it.",
    )
    search_steps: int | None = flag(
        "search-steps=N",
        values.positive,
        None,
        "Maximum number of steps of one search for cards.",
        unset=str(DEFAULT_STEP_LIMIT),
    )

    qps: float | None = flag(
        "qps=N",
        values.rate,
        None,
        "Maximum number of requests to the API server per second, up to 1000.",
        group="Kubernetes API",
        unset="no limit; 5 if only --burst is given",
    )
    burst: int | None = flag(
        "burst=N",
        values.positive,
        None,
        "Maximum number of requests at once under --qps, up to 1000.",
        unset="no limit; 10 if only --qps is given",
    )

    @property
    def order_of_cards(self) -> CardOrder:
        """The order for pods that do not choose one."""
        if self.card_order is not None:
            return self.card_order
        return LeastUsed(self.balanced_resource) if self.balanced_resource else DEFAULT_ORDER

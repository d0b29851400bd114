"""Define the plugin's metrics in a registry of their own; their help texts describe them."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gas.daemon.metric import Metric
from gas.daemon.watch_metrics import WatchCollector
from gas.plugin.part import Sample

ANSWER_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Bounds of the histogram's buckets in seconds: from an immediate reply to the longest that kubelet waits."""

ROWS = (
    Metric(
        "gas_plugin_cards",
        "Cards of this node, by driver and state: healthy, or unhealthy, which containers do not get.",
        ("driver", "state"),
    ),
    Metric(
        "gas_plugin_card_losses_total",
        "Times that a card became unhealthy, by driver. The event GPUCardUnhealthy of the node says why.",
        ("driver",),
    ),
    Metric(
        "gas_plugin_card_returns_total",
        "Times that an unhealthy card became healthy again, by driver; event GPUCardHealthy.",
        ("driver",),
    ),
    Metric(
        "gas_plugin_container_fault",
        "1 while the plugin's container cannot use cards that the node has, and a new container may; else 0. The event "
        "GPUContainerFault says why, and /healthz fails after 2 or 15 minutes.",
    ),
    Metric(
        "gas_plugin_card_memory_bytes",
        "Memory of a card that pods can request, by card and by the source of the amount: sysfs, query (the "
        "driver), bar (the card's PCI memory window), override (GPU_MEMORY_OVERRIDE), shared (an integrated GPU, "
        "which has no memory of its own) or unknown.",
        ("card", "source"),
    ),
    Metric("gas_plugin_scan_problems", "Values that could not be read or make no sense in the last scan of the cards."),
    Metric("gas_plugin_scans_total", "Completed scans of the cards. If it does not rise, a card does not respond."),
    Metric("gas_plugin_receipts_written_total", "Receipts written on pods."),
    Metric(
        "gas_plugin_node_writes_total",
        "Times that the description of the cards was written on the node. If it rises all the time, another "
        "program writes the same names.",
    ),
    Metric(
        "gas_plugin_registrations_total",
        "Registrations of a resource that kubelet accepted. If it rises, kubelet or the plugin restarts, or "
        "another plugin registers the same resource.",
        ("resource",),
    ),
    Metric("gas_plugin_registered", "1 while kubelet watches the devices of a resource, else 0.", ("resource",)),
    Metric("gas_plugin_fake_gpus", "1 if the cards are simulated, for demonstrations and tests, else 0."),
    Metric("gas_plugin_ready", "1 while /readyz returns ok: kubelet can allocate every card of this node; else 0."),
)

_RECEIPTS = {
    "mismatch": (
        "gas_plugin_mismatches_total",
        "Pods that, according to kubelet, have other cards than the extender decided.",
    ),
    "adopted": (
        "gas_plugin_adopted_pods_total",
        "Pods that, according to kubelet, have cards that the extender did not decide.",
    ),
    "repaired": (
        "gas_plugin_repaired_receipts_total",
        "Receipts on pods that differed from what kubelet says and were corrected.",
    ),
}

Family = CounterMetricFamily | GaugeMetricFamily


class Metrics(Collector):
    """The plugin's metrics. Some are counted where things happen; those of ``rows`` are read at each scrape.

    registry  what `/metrics` shows
    watches   takes each watch, see `WatchCollector.follow`
    rows      without samples before `read`
    receipts  counters by the kind of receipt
    """

    def __init__(self, version: str, rows: Sequence[Metric] = ()) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=False)
        counter = partial(Counter, registry=registry)
        self.watches = WatchCollector("gas_plugin")
        registry.register(self.watches)
        self.rows = (*ROWS, *rows)
        self._read: Callable[[], Iterable[Sample]] = tuple
        registry.register(self)
        self.answers = counter(
            "gas_plugin_answers_total",
            "Responses to kubelet, by method and outcome: decided, fell-back (a bug; kubelet's own choice stands and "
            "the log has the error), refused (no device could be given, which ends the pod).",
            ["resource", "method", "outcome"],
        )
        self.answer_seconds = Histogram(
            "gas_plugin_answer_seconds",
            "Seconds that kubelet waited for a response, at most one. Meanwhile nothing else on the node starts or "
            "ends.",
            ["method"],
            buckets=ANSWER_SECONDS,
            registry=registry,
        )
        self.allocations = counter(
            "gas_plugin_allocations_total",
            "Containers that were given cards, by outcome: as-decided, otherwise (other cards than decided), undecided "
            "(nothing was decided for the pod), unknown (kubelet's call could not be matched to a pod).",
            ["resource", "outcome"],
        )
        self.matches = counter(
            "gas_plugin_matches_total",
            "Containers that were given cards, by how surely kubelet's call was matched to them: known, alone (the "
            "only candidate), guessed, none.",
            ["confidence"],
        )
        self.receipts = {kind: counter(*each) for kind, each in _RECEIPTS.items()}
        self.tile_mismatches = counter(
            "gas_plugin_tile_mismatches_total",
            "Containers that were given another tile mask than the one that was decided.",
        )
        Gauge(
            "gas_plugin_build_info", "Always 1; the label is the version that runs.", ["version"], registry=registry
        ).labels(version).set(1)

    def read(self, read: Callable[[], Iterable[Sample]]) -> None:
        """Set the function that returns the samples at each scrape."""
        self._read = read

    def collect(self) -> Iterable[Family]:
        families: dict[str, Family] = {}
        for row in self.rows:
            kind = CounterMetricFamily if row.only_rises else GaugeMetricFamily
            families[row.name] = kind(row.name, row.description, labels=row.labels)
        for name, labels, value in self._read():
            families[name].add_metric(labels, value)
        return families.values()

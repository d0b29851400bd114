"""The plugin's metrics, in a registry of its own; the help texts say what each counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from gas.daemon.watch_metrics import WatchCollector

ANSWER_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Bounds of the histogram's buckets: from an answer without a thought to the longest that kubelet is kept waiting."""


class Totals(Collector):
    """What the parts count themselves, asked at the moment of a scrape.

    scans             looks at the cards that came to their end
    receipts_written  receipts written on pods
    node_writes       times that what the node says was written
    registrations     by resource, how many times kubelet took a registration
    """

    def __init__(self) -> None:
        self.scans: Callable[[], int] = lambda: 0
        self.receipts_written: Callable[[], int] = lambda: 0
        self.node_writes: Callable[[], int] = lambda: 0
        self.registrations: Callable[[], Mapping[str, int]] = dict

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily("gas_plugin_scans", "Looks at the cards that came to their end.", value=self.scans())
        yield CounterMetricFamily(
            "gas_plugin_receipts_written", "Receipts that were written on pods.", value=self.receipts_written()
        )
        yield CounterMetricFamily(
            "gas_plugin_node_writes",
            "Times that what the node says about its cards was written.",
            value=self.node_writes(),
        )
        registrations = CounterMetricFamily(
            "gas_plugin_registrations", "Registrations of a resource that kubelet took.", labels=["resource"]
        )
        for resource, count in self.registrations().items():
            registrations.add_metric([resource], count)
        yield registrations

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names never clash."""
        return ()


class Metrics:
    """The plugin's metrics as attributes; whoever sees something happen counts it.

    registry   what `/metrics` shows
    watches    takes each watch, see `WatchCollector.follow`
    totals     takes what is counted elsewhere
    """

    def __init__(self, version: str) -> None:
        registry = self.registry = CollectorRegistry(auto_describe=False)

        self.cards = Gauge(
            "gas_plugin_cards",
            "Cards of this node, by driver and by whether they can be given to containers now.",
            ["driver", "state"],
            registry=registry,
        )
        self.scan_problems = Gauge(
            "gas_plugin_scan_problems",
            "Things that could not be read or make no sense at the last look at the cards.",
            registry=registry,
        )
        self.fake = Gauge(
            "gas_plugin_fake_gpus",
            "1 when the cards are those of a generated tree, for demonstrations and tests, else 0.",
            registry=registry,
        )

        self.answers = Counter(
            "gas_plugin_answers_total",
            "Answers to kubelet by method and by how they came about: decided, fell-back (the decision failed and "
            "kubelet's own choice stands) or refused (nothing could be given, which ends the pod).",
            ["resource", "method", "outcome"],
            registry=registry,
        )
        self.answer_seconds = Histogram(
            "gas_plugin_answer_seconds",
            "Seconds that kubelet waited for an answer, in which nothing else on the node starts or ends.",
            ["method"],
            buckets=ANSWER_SECONDS,
            registry=registry,
        )
        self.allocations = Counter(
            "gas_plugin_allocations_total",
            "Containers that were given cards: as-decided, otherwise (other cards than decided), undecided (nothing "
            "was decided for the pod) or unknown (it is not known whose call it was).",
            ["resource", "outcome"],
            registry=registry,
        )
        self.matches = Counter(
            "gas_plugin_matches_total",
            "Containers that were given cards, by how sure it is whose they are: known, alone, guessed or none.",
            ["confidence"],
            registry=registry,
        )

        self.mismatches = Counter(
            "gas_plugin_mismatches_total",
            "Pods that turned out to have other cards than were decided for them.",
            registry=registry,
        )
        self.tile_mismatches = Counter(
            "gas_plugin_tile_mismatches_total",
            "Containers that turned out to have been given another mask of tiles than they should have.",
            registry=registry,
        )
        self.adopted = Counter(
            "gas_plugin_adopted_pods_total",
            "Pods that turned out to have cards although nothing was decided for them.",
            registry=registry,
        )
        self.repaired = Counter(
            "gas_plugin_repaired_receipts_total",
            "Receipts on pods that said something else than kubelet.",
            registry=registry,
        )

        self.registered = Gauge(
            "gas_plugin_registered",
            "1 while kubelet watches the devices of a resource, else 0.",
            ["resource"],
            registry=registry,
        )
        self.totals = Totals()
        registry.register(self.totals)
        self.watches = WatchCollector("gas_plugin")
        registry.register(self.watches)
        self.ready = Gauge(
            "gas_plugin_ready",
            "1 while kubelet can give away every card that this node has, else 0.",
            registry=registry,
        )
        Gauge(
            "gas_plugin_build_info",
            "Always 1; the label says which version runs.",
            ["version"],
            registry=registry,
        ).labels(version).set(1)

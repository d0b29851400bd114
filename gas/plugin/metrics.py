"""The plugin's metrics, in a registry of their own; their help texts describe them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gas.daemon.watch_metrics import WatchCollector
from gas.values.card_facts import CardFacts

ANSWER_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Bounds of the histogram's buckets in seconds: from an immediate reply to the longest that kubelet waits."""


class Totals(Collector):
    """Counters that the parts of the plugin keep themselves, read at each scrape.

    Until a part is followed, its counters are zero.

    cards             the cards of this node, as the last scan found them
    scans             completed scans of the cards
    receipts_written  receipts written on pods
    node_writes       patches of the node
    registrations     registrations that kubelet accepted, by resource
    """

    def __init__(self) -> None:
        self._cards: Callable[[], Collection[CardFacts]] = tuple
        self._scans: Callable[[], int] = lambda: 0
        self._receipts_written: Callable[[], int] = lambda: 0
        self._node_writes: Callable[[], int] = lambda: 0
        self._registrations: Callable[[], Mapping[str, int]] = dict

    def follow_devices(
        self,
        *,
        cards: Callable[[], Collection[CardFacts]],
        scans: Callable[[], int],
        registrations: Callable[[], Mapping[str, int]],
    ) -> None:
        """Report what the parts that serve kubelet count."""
        self._cards, self._scans, self._registrations = cards, scans, registrations

    def follow_writes(
        self, *, receipts_written: Callable[[], int], node_writes: Callable[[], int] | None = None
    ) -> None:
        """Report what is written on pods, and on the node if the plugin writes it itself."""
        self._receipts_written = receipts_written
        self._node_writes = node_writes or self._node_writes

    def collect(self) -> Iterable[Metric]:
        memory = GaugeMetricFamily(
            "gas_plugin_card_memory_bytes",
            "Memory of a card that pods can request, by card and by the source of the amount: sysfs, query (the "
            "driver), bar (the card's PCI memory window), override (GPU_MEMORY_OVERRIDE), shared (an integrated GPU, "
            "which has no memory of its own) or unknown.",
            labels=["card", "source"],
        )
        for gpu in self._cards():
            memory.add_metric([str(gpu.card), gpu.memory_source], gpu.memory or 0)
        yield memory
        yield CounterMetricFamily(
            "gas_plugin_scans",
            "Completed scans of the cards. If it does not rise, a card does not respond.",
            value=self._scans(),
        )
        yield CounterMetricFamily(
            "gas_plugin_receipts_written", "Receipts written on pods.", value=self._receipts_written()
        )
        yield CounterMetricFamily(
            "gas_plugin_node_writes",
            "Times that the description of the cards was written on the node. If it rises all the time, another "
            "program writes the same names.",
            value=self._node_writes(),
        )
        registrations = CounterMetricFamily(
            "gas_plugin_registrations",
            "Registrations of a resource that kubelet accepted. If it rises, kubelet or the plugin restarts, or "
            "another plugin registers the same resource.",
            labels=["resource"],
        )
        for resource, count in self._registrations().items():
            registrations.add_metric([resource], count)
        yield registrations

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names never clash."""
        return ()


class PodFigures(NamedTuple):
    """One pod's use of one card.

    memory     bytes
    requested  bytes; None if the pod was not given the card
    seconds    engine time by class
    """

    namespace: str
    pod: str
    card: str
    memory: int
    requested: int | None
    seconds: Mapping[str, float]


class UsageFigures(NamedTuple):
    """The use of the cards.

    over_request  pods that use more memory of a card than they requested
    walks         completed readings of the processes of pods
    cpu_seconds   their processor time
    problems      kinds of failures in the last one
    """

    pods: Sequence[PodFigures] = ()
    over_request: int = 0
    walks: int = 0
    cpu_seconds: float = 0.0
    problems: int = 0


class UsageCollector(Collector):
    """Metrics of the use of the cards, read at each scrape. There are none before `follow`, so none without --usage."""

    def __init__(self) -> None:
        self._figures: Callable[[], UsageFigures] = UsageFigures

    def follow(self, figures: Callable[[], UsageFigures]) -> None:
        """Report these figures."""
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        labels = ["namespace", "pod", "card"]
        used = GaugeMetricFamily(
            "gas_plugin_pod_memory_used_bytes",
            "Memory of a card that the processes of a pod use, with --usage.",
            labels=labels,
        )
        requested = GaugeMetricFamily(
            "gas_plugin_pod_memory_requested_bytes",
            "Memory of a card that a pod requested, with --usage. There is none for a card that the pod was not given.",
            labels=labels,
        )
        engines = CounterMetricFamily(
            "gas_plugin_pod_engine_seconds",
            "Seconds for which a pod kept the engines of a class busy, with --usage. Classes have the driver's names, "
            "such as render (i915) or rcs (xe).",
            labels=[*labels, "engine"],
        )
        figures = self._figures()
        for each in figures.pods:
            place = [each.namespace, each.pod, each.card]
            used.add_metric(place, each.memory)
            if each.requested is not None:
                requested.add_metric(place, each.requested)
            for engine, seconds in each.seconds.items():
                engines.add_metric([*place, engine], seconds)
        yield from (used, requested, engines)
        yield GaugeMetricFamily(
            "gas_plugin_pods_over_memory_request",
            "Pods that use more memory of a card than they requested of it, with --usage.",
            value=figures.over_request,
        )
        yield CounterMetricFamily(
            "gas_plugin_usage_walks",
            "Completed readings of the processes of pods, with --usage. If it does not rise, see the log.",
            value=figures.walks,
        )
        yield CounterMetricFamily(
            "gas_plugin_usage_cpu_seconds", "Processor time of these readings.", value=figures.cpu_seconds
        )
        yield GaugeMetricFamily(
            "gas_plugin_usage_problems",
            "Kinds of failures in the last of these readings; the log describes each.",
            value=figures.problems,
        )

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names never clash."""
        return ()


class Metrics:
    """The plugin's metrics as attributes; whoever sees something happen counts it.

    registry   what `/metrics` shows
    watches    takes each watch, see `WatchCollector.follow`
    totals     takes what is counted elsewhere
    usage      takes the figures of `gas.plugin.usage`
    """

    def __init__(self, version: str) -> None:
        registry = self.registry = CollectorRegistry(auto_describe=False)

        self.cards = Gauge(
            "gas_plugin_cards",
            "Cards of this node, by driver and state: healthy, or unhealthy, which containers do not get.",
            ["driver", "state"],
            registry=registry,
        )
        self.scan_problems = Gauge(
            "gas_plugin_scan_problems",
            "Values that could not be read or make no sense in the last scan of the cards.",
            registry=registry,
        )
        self.fake = Gauge(
            "gas_plugin_fake_gpus",
            "1 if the cards are simulated, for demonstrations and tests, else 0.",
            registry=registry,
        )

        self.answers = Counter(
            "gas_plugin_answers_total",
            "Responses to kubelet, by method and outcome: decided, fell-back (a bug; kubelet's own choice stands and "
            "the log has the error), refused (no device could be given, which ends the pod).",
            ["resource", "method", "outcome"],
            registry=registry,
        )
        self.answer_seconds = Histogram(
            "gas_plugin_answer_seconds",
            "Seconds that kubelet waited for a response, at most one. Meanwhile nothing else on the node starts or "
            "ends.",
            ["method"],
            buckets=ANSWER_SECONDS,
            registry=registry,
        )
        self.allocations = Counter(
            "gas_plugin_allocations_total",
            "Containers that were given cards, by outcome: as-decided, otherwise (other cards than decided), undecided "
            "(nothing was decided for the pod), unknown (kubelet's call could not be matched to a pod).",
            ["resource", "outcome"],
            registry=registry,
        )
        self.matches = Counter(
            "gas_plugin_matches_total",
            "Containers that were given cards, by how surely kubelet's call was matched to them: known, alone (the "
            "only candidate), guessed, none.",
            ["confidence"],
            registry=registry,
        )

        self.mismatches = Counter(
            "gas_plugin_mismatches_total",
            "Pods that, according to kubelet, have other cards than the extender decided.",
            registry=registry,
        )
        self.tile_mismatches = Counter(
            "gas_plugin_tile_mismatches_total",
            "Containers that were given another tile mask than the one that was decided.",
            registry=registry,
        )
        self.adopted = Counter(
            "gas_plugin_adopted_pods_total",
            "Pods that, according to kubelet, have cards that the extender did not decide.",
            registry=registry,
        )
        self.repaired = Counter(
            "gas_plugin_repaired_receipts_total",
            "Receipts on pods that differed from what kubelet says and were corrected.",
            registry=registry,
        )

        self.limited_pods = Gauge(
            "gas_plugin_memory_limited_pods",
            "Pods whose memory on shared cards the kernel limits, with --memory-limits=pod.",
            registry=registry,
        )
        self.limits_missing = Gauge(
            "gas_plugin_memory_limits_missing",
            "1 while pods, or some of them, have no memory limits although --memory-limits=pod asks for them; the log "
            "has the reason. Else 0.",
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
        self.usage = UsageCollector()
        registry.register(self.usage)
        self.watches = WatchCollector("gas_plugin")
        registry.register(self.watches)
        self.ready = Gauge(
            "gas_plugin_ready",
            "1 while /readyz returns ok: kubelet can allocate every card of this node; else 0.",
            registry=registry,
        )
        Gauge(
            "gas_plugin_build_info",
            "Always 1; the label is the version that runs.",
            ["version"],
            registry=registry,
        ).labels(version).set(1)

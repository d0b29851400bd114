"""The metrics of the core of the extender, in a registry of their own.

The metrics of the cards are in `gas.extender.gauges`, those of the parts in their declarations.
"""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gas.daemon.watch_metrics import WatchCollector

REQUEST_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets: from a warm filter to twice the time that kube-scheduler waits."""


class Metrics:
    """The metrics of the core as attributes; each is counted where the event happens."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry(auto_describe=False)  # served as ``/metrics``
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        self.requests = counter(
            "gas_extender_requests_total",
            "Requests of kube-scheduler, by verb and result. filter: fits, refused. bind: bound, error. "
            "prioritize: scored. preempt: victims, no-victims. All: not-ready, bad-request, unreadable, "
            "wrong-content-type, wrong-method, too-large, too-slow, client-gone, "
            "internal-error (a bug; the log has the traceback).",
            ["verb", "result"],
        )
        self.request_seconds = Histogram(
            "gas_extender_request_seconds",
            "Seconds from the headers of a request to its response, including the transfer of its body.",
            ["verb"],
            buckets=REQUEST_SECONDS,
            registry=self.registry,
        )
        self.refusals = counter(
            "gas_extender_refusals_total",
            "Nodes that had no room for a pod, by kind of reason; docs/troubleshooting.md explains the kinds.",
            ["reason"],
        )
        self.search_limits = counter(
            "gas_extender_search_limit_hits_total", "Searches for cards that stopped at the limit of --search-steps."
        )
        self.corrections = counter(
            "gas_extender_corrections_total",
            "Times that the ledger was changed because a pod got other cards than were decided for it.",
        )
        self.unreadable_annotations = gauge(
            "gas_extender_unreadable_annotations",
            "Bound pods whose card annotations cannot be read or differ from the ledger.",
        )
        self.unannotated_pods = gauge(
            "gas_extender_unannotated_gpu_pods",
            "Bound pods that ask for GPUs and have no annotation with the cards that they hold.",
        )
        self.leader = gauge(
            "gas_extender_leader", "1 while this replica holds the Lease, else 0; always 1 without --leader-elect."
        )
        self.ready = gauge("gas_extender_ready", "1 while this replica decides filter and bind requests, else 0.")
        self.refused_clients = counter(
            "gas_extender_refused_clients_total",
            "TLS clients that were refused at the handshake, by reason: no-certificate, unverified, name, handshake.",
            ["reason"],
        )
        self.certificate_expiry = gauge(
            "gas_extender_certificate_expiry_timestamp_seconds",
            "When the certificate of a flag (cert, cacert, admission-certificate, admission-client-ca) expires, in "
            "seconds since the epoch; of several in one file the first to expire.",
            ["flag"],
        )
        self.certificate_reloads = counter(
            "gas_extender_certificate_reloads_total",
            "Times that changed certificate files were read, by result: used, failed.",
            ["result"],
        )
        self.watches = WatchCollector("gas_extender")  # counts the events of each watch, see `WatchCollector.follow`
        self.registry.register(self.watches)
        build_info = gauge("gas_extender_build_info", "Always 1; the label is the version that runs.", ["version"])
        build_info.labels(version).set(1)

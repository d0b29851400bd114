"""Metrics of the watches on the API server, the same for every daemon."""

from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class Followed(Protocol):
    last_contact: float
    relists: int
    broken: int
    undecodable: int


_AGE = "Seconds since a watch last heard from the API server. Up to two minutes are normal."
_COUNTS: Mapping[str, tuple[str, Callable[[Followed], int]]] = {
    "relists": (
        "Times that all objects of a kind were listed again because their watch could not resume.",
        lambda watch: watch.relists,
    ),
    "broken_watches": ("Watches that ended with an error, and lists that failed.", lambda watch: watch.broken),
    "undecodable_objects": (
        "Objects from the API server that could not be decoded and were left out.",
        lambda watch: watch.undecodable,
    ),
}


class WatchCollector(Collector):
    """Metrics of each watch, read at the moment of a scrape; ``prefix`` begins their names."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._watches: dict[str, Followed] = {}

    def follow(self, kind: str, watch: Followed) -> None:
        self._watches[kind] = watch

    def collect(self) -> Iterable[Metric]:
        age = GaugeMetricFamily(f"{self._prefix}_watch_age_seconds", _AGE, labels=["kind"])
        for kind, watch in self._watches.items():
            age.add_metric([kind], monotonic() - watch.last_contact)
        yield age
        for name, (text, count) in _COUNTS.items():
            counted = CounterMetricFamily(f"{self._prefix}_{name}", text, labels=["kind"])
            for kind, watch in self._watches.items():
                counted.add_metric([kind], count(watch))
            yield counted

"""Metrics of the watches on the API server, the same for every daemon."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class Followed(Protocol):
    """A list and watch, with the figures for its metrics."""

    @property
    def last_contact(self) -> float | None: ...

    @property
    def relists(self) -> int: ...

    @property
    def broken(self) -> int: ...

    @property
    def undecodable(self) -> int: ...


class WatchCollector(Collector):
    """Metrics of each watch, read at the moment of a scrape.

    prefix  of the metrics' names, such as ``gas_extender``
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._watches: dict[str, Followed] = {}

    def follow(self, kind: str, watch: Followed) -> None:
        """Report ``watch`` as the watch on ``kind``."""
        self._watches[kind] = watch

    def collect(self) -> Iterable[Metric]:
        age = GaugeMetricFamily(
            f"{self._prefix}_watch_age_seconds",
            "Seconds since a watch last heard from the API server. Up to two minutes are normal.",
            labels=["kind"],
        )
        relists = CounterMetricFamily(
            f"{self._prefix}_relists",
            "Times that all objects of a kind were listed again because their watch could not resume.",
            labels=["kind"],
        )
        broken = CounterMetricFamily(
            f"{self._prefix}_broken_watches",
            "Watches that ended with an error, and lists that failed.",
            labels=["kind"],
        )
        undecodable = CounterMetricFamily(
            f"{self._prefix}_undecodable_objects",
            "Objects from the API server that could not be decoded and were left out.",
            labels=["kind"],
        )
        for kind, watch in self._watches.items():
            if watch.last_contact is not None:
                age.add_metric([kind], monotonic() - watch.last_contact)
            relists.add_metric([kind], watch.relists)
            broken.add_metric([kind], watch.broken)
            undecodable.add_metric([kind], watch.undecodable)
        return (age, relists, broken, undecodable)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the names cannot clash, and no watch has to exist at registration."""
        return ()

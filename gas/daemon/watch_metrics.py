"""Metrics of the watches on the API server, the same for every program."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class Followed(Protocol):
    """A list and watch, as far as its metrics go."""

    @property
    def last_contact(self) -> float | None: ...

    @property
    def relists(self) -> int: ...

    @property
    def broken(self) -> int: ...

    @property
    def undecodable(self) -> int: ...


class WatchCollector(Collector):
    """How each watch fares, asked at the moment of a scrape.

    prefix  of the metrics' names: ``gas_extender``
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._watches: dict[str, Followed] = {}

    def follow(self, kind: str, watch: Followed) -> None:
        """Report about ``watch`` as the watch on ``kind``."""
        self._watches[kind] = watch

    def collect(self) -> Iterable[Metric]:
        age = GaugeMetricFamily(
            f"{self._prefix}_watch_age_seconds",
            "Seconds since a watch last heard from the API server.",
            labels=["kind"],
        )
        relists = CounterMetricFamily(
            f"{self._prefix}_relists",
            "Times that a kind of object had to be listed again because its watch could not resume.",
            labels=["kind"],
        )
        broken = CounterMetricFamily(
            f"{self._prefix}_broken_watches", "Watches that ended in an error, and lists that failed.", labels=["kind"]
        )
        undecodable = CounterMetricFamily(
            f"{self._prefix}_undecodable_objects",
            "Objects of the API server that could not be read and were left out.",
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
        """Nothing: the names never clash, and no watch needs to exist yet."""
        return ()

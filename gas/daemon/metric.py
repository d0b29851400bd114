"""Declare metrics as data, so that a declaration loads no library of metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge


class Metric(NamedTuple):
    """A counter, whose name ends in ``_total``, or a gauge."""

    name: str
    description: str
    labels: tuple[str, ...] = ()

    @property
    def only_rises(self) -> bool:
        return self.name.endswith("_total")

    def counter(self, registry: CollectorRegistry) -> Counter:
        from prometheus_client import Counter

        return Counter(*self, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        from prometheus_client import Gauge

        return Gauge(*self, registry=registry)

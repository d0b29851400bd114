"""Declare metrics as data, so that a declaration loads no library of metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge


@dataclass(frozen=True, slots=True)
class CounterMetric:
    """A metric that only rises. Its name ends in ``_total``."""

    name: str
    help_text: str
    labels: tuple[str, ...] = ()

    def register(self, registry: CollectorRegistry) -> Counter:
        from prometheus_client import Counter

        return Counter(self.name, self.help_text, self.labels, registry=registry)


@dataclass(frozen=True, slots=True)
class GaugeMetric:
    name: str
    help_text: str
    labels: tuple[str, ...] = ()

    def register(self, registry: CollectorRegistry) -> Gauge:
        from prometheus_client import Gauge

        return Gauge(self.name, self.help_text, self.labels, registry=registry)


Metric = CounterMetric | GaugeMetric

"""Metrics declared as data, so that a declaration loads no library of metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge


@dataclass(frozen=True, slots=True)
class CounterMetric:
    """A metric that only rises.

    name    ends in ``_total``
    labels  their names
    """

    name: str
    help_text: str
    labels: tuple[str, ...] = ()

    def register(self, registry: CollectorRegistry) -> Counter:
        """Make the metric in a registry."""
        from prometheus_client import Counter

        return Counter(self.name, self.help_text, self.labels, registry=registry)


@dataclass(frozen=True, slots=True)
class GaugeMetric:
    """A metric that rises and falls."""

    name: str
    help_text: str
    labels: tuple[str, ...] = ()

    def register(self, registry: CollectorRegistry) -> Gauge:
        """Make the metric in a registry."""
        from prometheus_client import Gauge

        return Gauge(self.name, self.help_text, self.labels, registry=registry)


Metric = CounterMetric | GaugeMetric

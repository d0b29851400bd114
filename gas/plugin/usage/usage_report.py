"""Show the use of the cards: the document ``/usage`` and the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import msgspec

from gas.plugin.part import Sample
from gas.plugin.usage.usage_monitor import INTERVAL, PodCardUse, UsageMonitor


def usage_json(monitor: UsageMonitor) -> bytes:
    """Return the body of ``/usage``.

    walked    when the processes were last read, RFC 3339; null before the first time
    interval  seconds between two readings
    trouble   why there are no current results; null if there are
    problems  what could not be read the last time
    pods      namespace, name, UID and cards. Of each card: ``memoryUsed`` and ``memoryRequested`` in bytes, the latter
              null if the pod was not given the card; ``clients``, how many clients of the card the pod has open; and
              ``engines`` by class: ``busy``, the share of the last interval, and ``seconds`` in total
    """
    return msgspec.json.encode(
        {
            "walked": monitor.walked or None,
            "interval": INTERVAL,
            "trouble": monitor.trouble,
            "problems": monitor.problems,
            "pods": [_pod(list(uses)) for _, uses in groupby(monitor.uses, key=lambda use: use.pod.uid)],
        }
    )


def _pod(uses: list[PodCardUse]) -> dict[str, object]:
    namespace, _, name = uses[0].pod.key.partition("/")
    return {
        "namespace": namespace,
        "name": name,
        "uid": uses[0].pod.uid,
        "cards": {
            str(card): {
                "memoryUsed": use.memory,
                "memoryRequested": requested,
                "clients": use.clients,
                "engines": {
                    engine: {"busy": round(time.busy, 4), "seconds": round(time.seconds, 3)}
                    for engine, time in use.engines.items()
                },
            }
            for _, card, use, requested in uses
        },
    }


def usage_samples(monitor: UsageMonitor) -> Iterator[Sample]:
    """Yield the samples of `gas.plugin.usage.part.METRICS`."""
    uses = list(monitor.uses)
    for pod, card, use, requested in uses:
        namespace, _, name = pod.key.partition("/")
        place = (namespace, name, str(card))
        yield "gas_plugin_pod_memory_used_bytes", place, use.memory
        if requested is not None:
            yield "gas_plugin_pod_memory_requested_bytes", place, requested
        for engine, time in use.engines.items():
            yield "gas_plugin_pod_engine_seconds_total", (*place, engine), time.seconds
    yield "gas_plugin_pods_over_memory_request", (), len({use.pod.uid for use in uses if use.is_over})
    yield "gas_plugin_usage_walks_total", (), monitor.walks
    yield "gas_plugin_usage_cpu_seconds_total", (), monitor.cpu_seconds
    yield "gas_plugin_usage_problems", (), len(monitor.problems)

"""Show the use of the cards: the document ``/usage`` and the metrics."""

from __future__ import annotations

from itertools import groupby

import msgspec

from gas.plugin.metrics import PodFigures, UsageFigures
from gas.plugin.usage.usage_monitor import INTERVAL, PodCardUse, UsageMonitor


def usage_json(monitor: UsageMonitor | None) -> bytes:
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
            "walked": (monitor.walked if monitor is not None else "") or None,
            "interval": INTERVAL,
            "trouble": monitor.trouble if monitor is not None else "the use of the cards is not measured: see --usage",
            "problems": monitor.problems if monitor is not None else (),
            "pods": [_pod(list(uses)) for _, uses in groupby(monitor.uses, key=lambda use: use.pod.uid)]
            if monitor is not None
            else [],
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


def usage_figures(monitor: UsageMonitor) -> UsageFigures:
    """Return the figures for the metrics."""
    return UsageFigures(
        pods=[_pod_figures(use) for use in monitor.uses],
        over_request=len({use.pod.uid for use in monitor.uses if use.is_over}),
        walks=monitor.walks,
        cpu_seconds=monitor.cpu_seconds,
        problems=len(monitor.problems),
    )


def _pod_figures(use: PodCardUse) -> PodFigures:
    namespace, _, name = use.pod.key.partition("/")
    seconds = {engine: time.seconds for engine, time in use.use.engines.items()}
    return PodFigures(namespace, name, str(use.card), use.use.memory, use.requested, seconds)

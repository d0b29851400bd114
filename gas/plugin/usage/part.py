"""Declare the part that measures what pods really use of the cards."""

from __future__ import annotations

from dataclasses import dataclass

from gas.daemon.flags import PartFlags, switch
from gas.daemon.metric import Metric
from gas.plugin.part import Core, Hooks, Part, PodNeeds


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFlags(PartFlags):
    usage: bool = switch(
        "usage",
        "Measure how much memory and engine time of the cards the pods of this node really use, and show it beside "
        "what they requested. The plugin must see the node's processes.",
        group="Use of the cards",
    )


_PLACE = ("namespace", "pod", "card")
METRICS = (
    Metric(
        "gas_plugin_pod_memory_used_bytes", "Memory of a card that the processes of a pod use, with --usage.", _PLACE
    ),
    Metric(
        "gas_plugin_pod_memory_requested_bytes",
        "Memory of a card that a pod requested, with --usage. There is none for a card that the pod was not given.",
        _PLACE,
    ),
    Metric(
        "gas_plugin_pod_engine_seconds_total",
        "Seconds for which a pod kept the engines of a class busy, with --usage. Classes have the driver's names, "
        "such as render (i915) or rcs (xe).",
        (*_PLACE, "engine"),
    ),
    Metric(
        "gas_plugin_pods_over_memory_request",
        "Pods that use more memory of a card than they requested of it, with --usage.",
    ),
    Metric(
        "gas_plugin_usage_walks_total",
        "Completed readings of the processes of pods, with --usage. If it does not rise, see the log.",
    ),
    Metric("gas_plugin_usage_cpu_seconds_total", "Processor time of these readings."),
    Metric("gas_plugin_usage_problems", "Kinds of failures in the last of these readings; the log describes each."),
)

_WHILE_OFF = (
    b'{"walked":null,"interval":10.0,"trouble":"the use of the cards is not measured: see --usage",'
    b'"problems":[],"pods":[]}'
)


def _build(core: Core, _flags: UsageFlags) -> Hooks:
    from gas.plugin.usage.usage_monitor import UsageMonitor, usage_json, usage_samples

    monitor = UsageMonitor(
        core.pods,
        core.gpus,
        core.flags.prefix / "proc",
        lambda pod, sentence: core.events.on_pod(pod, "GPUMemoryOverRequest", sentence),
        processes=core.processes,
    )
    return Hooks(
        tasks=(monitor.run,), samples=lambda: usage_samples(monitor), documents={"/usage": lambda: usage_json(monitor)}
    )


USAGE = Part(
    name="usage",
    flags=UsageFlags,
    is_on=lambda _core, own: own.usage,
    build=_build,
    needs_pods=True,
    switched_on_by="--usage",
    metrics=METRICS,
    documents={"/usage": _WHILE_OFF},
    pod=PodNeeds(host_pid=True, capabilities=("SYS_PTRACE",)),
)

"""The part that marks pods for the descheduler by what telemetry writes on nodes."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from gas.daemon.permissions import permissions_on
from gas.decision.names import DESCHEDULE_POD_LABEL, DESCHEDULED_BY_US
from gas.extender.part import Additions, Core, Part


class DeschedulingMetrics:
    """The metrics of descheduling."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.descheduled_pods = Gauge(
            "gas_extender_descheduled_pods", "Pods that have the deschedule label now.", registry=registry
        )
        self.deschedule_patches = Counter(
            "gas_extender_deschedule_patches_total",
            "Times that the deschedule label was put on a pod (put-on) or taken off (taken-off).",
            ["change"],
            registry=registry,
        )


def _build(core: Core) -> Additions:
    from gas.cluster.objects import patch_pod_metadata
    from gas.extender.hooks import Hooks
    from gas.extender.telemetry.descheduler import Descheduler

    descheduler = Descheduler(
        core.decider,
        DeschedulingMetrics(core.metrics.registry),
        patch_pod=partial(patch_pod_metadata, core.api),
        acts=core.may_act,
    )
    return Additions(hooks=Hooks(observers=(descheduler,)), tasks=(descheduler.run,))


TELEMETRY = Part(
    is_on=lambda _flags: True,
    build=_build,
    metrics=DeschedulingMetrics,
    permissions=lambda _flags, _namespace: permissions_on("pods", "patch"),
    bound_names=frozenset({DESCHEDULE_POD_LABEL, DESCHEDULED_BY_US}),
)

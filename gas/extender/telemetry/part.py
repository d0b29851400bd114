"""The part that marks pods for the descheduler by what telemetry writes on nodes."""

from functools import partial

from gas.daemon.metric import Metric
from gas.daemon.permissions import permissions_on
from gas.extender.part import Additions, Core, Part

DESCHEDULED_PODS = Metric("gas_extender_descheduled_pods", "Pods that have the deschedule label now.")
DESCHEDULE_PATCHES = Metric(
    "gas_extender_deschedule_patches_total",
    "Times that the deschedule label was put on a pod (put-on) or taken off (taken-off).",
    ("change",),
)


def _build(core: Core) -> Additions:
    from gas.cluster.objects import patch_pod_metadata
    from gas.extender.telemetry.descheduler import Descheduler

    descheduler = Descheduler(
        core.decider,
        DESCHEDULE_PATCHES.counter(core.metrics.registry),
        patch_pod=partial(patch_pod_metadata, core.api),
        acts=core.may_act,
    )
    DESCHEDULED_PODS.gauge(core.metrics.registry).set_function(lambda: len(descheduler.labelled.records))
    return Additions(hooks=descheduler.hooks, tasks=(descheduler.run,))


TELEMETRY = Part(
    is_on=lambda _flags: True,
    build=_build,
    metrics=(DESCHEDULED_PODS, DESCHEDULE_PATCHES),
    permissions=lambda _flags, _namespace: permissions_on("pods", "patch"),
)

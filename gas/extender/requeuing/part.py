"""The part that makes kube-scheduler try refused pods again once cards are free."""

from functools import partial

from gas.daemon.metric import Metric
from gas.daemon.permissions import permissions_on
from gas.extender.hooks import Hooks
from gas.extender.part import Additions, Core, Part

WAKES = Metric("gas_extender_wakes_total", "Patches of a node that requeue waiting pods.")


def _build(core: Core) -> Additions:
    from gas.cluster.objects import patch_node_annotations
    from gas.extender.requeuing.requeuer import Requeuer

    requeuer = Requeuer(
        core.decider,
        WAKES.counter(core.metrics.registry),
        patch_node=partial(patch_node_annotations, core.api),
        acts=core.may_act,
        timing=core.timing,
    )
    return Additions(hooks=Hooks(observers=(requeuer,)), tasks=(requeuer.run,), begin=(requeuer.requeue_all,))


REQUEUING = Part(
    is_on=lambda _flags: True,
    build=_build,
    metrics=(WAKES,),
    permissions=lambda _flags, _namespace: permissions_on("nodes", "patch"),
)

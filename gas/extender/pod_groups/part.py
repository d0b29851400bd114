"""The part that gives the pods of a PodGroup their cards together or not at all."""

from dataclasses import dataclass

from gas.daemon.flags import PartFlags, switch
from gas.daemon.permissions import permissions_on
from gas.extender.part import Additions, Core, Part


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroupFlags(PartFlags):
    pod_groups: bool = switch(
        "pod-groups",
        "Give the pods of a PodGroup (scheduling.k8s.io, feature gate GenericWorkload) their cards together or not at "
        "all. Also watches PodGroups.",
        group="PodGroups",
    )


def _build(core: Core) -> Additions:
    from gas.cluster import paths
    from gas.cluster.listing import Lister
    from gas.cluster.watch import Watch
    from gas.extender.pod_groups.pod_groups import PodGroups
    from gas.objects.stored import PodGroup

    groups = PodGroups(core.decider, unexpect=core.pending_binds.came, now=core.timing.seconds)
    watch = Watch(Lister(core.api, paths.POD_GROUPS, PodGroup), groups.minimums, timing=core.timing)

    return Additions(hooks=groups.hooks, watches={"podgroups": watch}, needed=frozenset({"podgroups"}))


POD_GROUPS = Part(
    flags=PodGroupFlags,
    is_on=lambda flags: flags.of(PodGroupFlags).pod_groups,
    build=_build,
    permissions=lambda _flags, _namespace: permissions_on("podgroups", "list", "watch", group="scheduling.k8s.io"),
)

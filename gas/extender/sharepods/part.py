"""The part that makes the pods of KubeShare's SharePods."""

from collections.abc import Mapping
from dataclasses import dataclass

from gas.daemon.flags import PartFlags, switch
from gas.daemon.permissions import Permission, permissions_on
from gas.extender.flags import Flags
from gas.extender.part import Additions, Core, Part
from gas.values.cards import Card


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePodFlags(PartFlags):
    sharepods: bool = switch(
        "sharepods",
        "Make the pods of SharePods (kubeshare.nthu/v1), and copy their status and metadata, with the vocabulary "
        "kubeshare.",
        group="Vocabularies",
    )


def _has_vocabulary(flags: Flags) -> bool:
    return any(each.name == "kubeshare" for each in flags.vocabularies)


def _warn(flags: Flags) -> str:
    is_ignored = flags.of(SharePodFlags).sharepods and not _has_vocabulary(flags)
    return "ignored: --sharepods; it needs kubeshare among --vocabularies" if is_ignored else ""


def _build(core: Core) -> Additions:
    from gas.extender.sharepods.controller import SharePods

    def uuids(node: str) -> Mapping[str, Card]:
        facts = core.decider.nodes.identified(node)
        return facts.uuids if facts is not None else {}

    controller = SharePods(core.api, events=core.events, acts=core.may_act, uuids=uuids, timing=core.timing)
    return Additions(
        watches={"sharepods": controller.share_watch},
        tasks=(controller.pod_watch.run, controller.run),
        begin=(controller.look_at_all,),
    )


def _permissions(_flags: Flags, _namespace: str) -> frozenset[Permission]:
    """Return those of the controller. Finalizers: to own pods where the API server checks owner references."""
    group = "kubeshare.nthu"
    return (
        permissions_on("pods", "create", "delete")
        | permissions_on("sharepods", "get", "list", "watch", "patch", group=group)
        | permissions_on("sharepods/status", "patch", group=group)
        | permissions_on("sharepods/finalizers", "update", group=group)
    )


SHAREPODS = Part(
    flags=SharePodFlags,
    is_on=lambda flags: flags.of(SharePodFlags).sharepods and _has_vocabulary(flags),
    build=_build,
    warn=_warn,
    permissions=_permissions,
)

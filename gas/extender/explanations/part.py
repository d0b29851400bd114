"""The part that explains to users of single namespaces why their own pods wait."""

from dataclasses import dataclass

from gas.daemon import flag_values as values
from gas.daemon.flags import PartFlags, flag
from gas.daemon.permissions import Permission, permissions_on
from gas.extender.flags import Flags
from gas.extender.part import Additions, Core, Part


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationFlags(PartFlags):
    port: int = flag(
        "explain-port=N",
        values.port,
        "0",
        "Port of the API explain.gas; 0 switches it off.",
        group="Explanations (TLS)",
    )


def _build(core: Core) -> Additions:
    from gas.daemon.listening import MOST_ADMISSION_CONNECTIONS, listen
    from gas.extender.explanations.api import ExplanationApi

    port = core.flags.of(ExplanationFlags).port
    opened = listen(core.flags.bind_address, port, flag="explain-port", most=MOST_ADMISSION_CONNECTIONS)
    return Additions(tasks=(ExplanationApi(core, opened).run,))


def _permissions(_flags: Flags, _namespace: str) -> frozenset[Permission]:
    """Return those to check the right of a user, and to know the API server's certificate."""
    name = "extension-apiserver-authentication"
    return permissions_on("subjectaccessreviews", "create", group="authorization.k8s.io") | {
        Permission("get", "configmaps", "", "kube-system", name)
    }


EXPLANATIONS = Part(
    flags=ExplanationFlags,
    is_on=lambda flags: flags.of(ExplanationFlags).port > 0,
    build=_build,
    permissions=_permissions,
)

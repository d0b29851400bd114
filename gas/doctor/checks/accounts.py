"""Check that the accounts of extender and plugin have the permissions that they need."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from gas.cluster.connection import ApiServer
from gas.cluster.objects import get_object, may_access
from gas.daemon.flags import UsageError
from gas.daemon.permissions import Permission, permissions_on
from gas.doctor import fix
from gas.doctor.check import Check, Sources
from gas.doctor.checks import daemonsets
from gas.doctor.checks.extender import INSTALL
from gas.doctor.findings import Finding, Unseen, about, ok, probe, problem, unknown, warning
from gas.doctor.objects import AnyObject
from gas.doctor.snapshot import Snapshot
from gas.extender.command_line import COMMAND_LINE, parse_flags
from gas.extender.flags import Flags
from gas.extender.parts import permissions_of
from gas.objects.stored import DetailedContainer
from gas.plugin.flags import WriteNode
from gas.programs import EXTENDER, PLUGIN, Program, flag_value, flag_values, is_on

ACCOUNTS = "accounts"

EXTENDER_ACCOUNTS = (
    ("default", "gas-extender"),
    ("default", "gpu-aware-scheduling-service-account"),
    ("gas-system", "gpu-aware-scheduling-service-account"),
)
"""Namespace and name of the accounts that the installations create.

Without an extender's pod, the first that exists is checked.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The service account of a program, and whether it has each permission."""

    program: Program
    namespace: str
    name: str
    allowed: Mapping[Permission, bool | Unseen]

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.name}"


def permissions(program: Program, container: DetailedContainer, namespace: str) -> Iterator[Permission]:
    """Yield the permissions that an extender needs with its flags, and a plugin in any case."""
    if program is EXTENDER:
        yield from permissions_of(_extender_flags(container), namespace)
        return
    if not is_on(container, "resource-manager", default=True):
        return
    yield from (Permission(verb, "events", needed=False) for verb in ("create", "patch"))
    yield from permissions_on("pods", "list", "watch", "patch")
    if (flag_value(container, "write-node") or WriteNode.PATCH) == WriteNode.PATCH:
        yield from permissions_on("nodes", "get", "list", "watch")
        yield Permission("patch", "nodes/status")


def _extender_flags(container: DetailedContainer) -> Flags:
    """Return the flags of an extender's container, or the defaults if the extender would refuse them."""
    given = [f"--{flag.name}={text}" for flag in COMMAND_LINE.flags for text in flag_values(container, flag.name)]
    try:
        return parse_flags(given)
    except UsageError:
        return parse_flags([])


async def _gather(sources: Sources) -> Mapping[str, object]:
    """Review the permissions of the accounts of extenders and plugins, or of an extender outside the cluster."""
    running = [
        (program, pod.metadata.namespace or "default", pod.spec.service_account_name or "default", container)
        for program in (EXTENDER, PLUGIN)
        for pod, container in sources.snapshot.running(program)
    ]
    if not sources.snapshot.running(EXTENDER):
        for namespace, name in EXTENDER_ACCOUNTS:
            at = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}"
            if isinstance(await probe(get_object(sources.api, at, AnyObject)), AnyObject):
                running.append((EXTENDER, namespace, name, DetailedContainer()))
                break
    wanted: dict[tuple[Program, str, str], set[Permission]] = {}
    for program, namespace, name, container in running:
        wanted.setdefault((program, namespace, name), set()).update(permissions(program, container, namespace))
    accounts = []
    for (program, namespace, name), needed in wanted.items():
        ordered = sorted(needed)
        reviews = await asyncio.gather(*(probe(_is_allowed(sources.api, namespace, name, each)) for each in ordered))
        allowed = dict(zip(ordered, reviews, strict=True))
        accounts.append(Account(program=program, namespace=namespace, name=name, allowed=allowed))
    return {ACCOUNTS: tuple(accounts)}


async def _is_allowed(api: ApiServer, namespace: str, name: str, permission: Permission) -> bool:
    resource, _, subresource = permission.resource.partition("/")
    attributes = {
        "verb": permission.verb,
        "group": permission.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": permission.namespace,
        "name": permission.name,
    }
    spec = {
        "user": f"system:serviceaccount:{namespace}:{name}",
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
        "resourceAttributes": {key: value for key, value in attributes.items() if value},
    }
    return await may_access(api, spec)


def check_accounts(snapshot: Snapshot) -> Iterator[Finding]:
    accounts: Iterable[Account] = snapshot.gathered.get(ACCOUNTS, ())
    for account in accounts:
        yield from about(f"serviceaccount {account.namespace}/{account.name}", _one(account))


def _one(account: Account) -> Iterator[Finding]:
    unseen = next((allowed for allowed in account.allowed.values() if isinstance(allowed, Unseen)), None)
    if unseen is not None:
        yield unknown(f"its permissions are unknown: {unseen.why}", unseen.fix)
    lacking = [permission for permission, allowed in account.allowed.items() if allowed is False]
    for namespace in sorted({each.namespace for each in lacking}):
        yield _lacking(account, namespace, [each for each in lacking if each.namespace == namespace])
    yield ok(f"it has all permissions that {account.program} needs", summary_of="object")


def _lacking(account: Account, namespace: str, lacking: list[Permission]) -> Finding:
    """Report the permissions that are missing in one namespace, or in the whole cluster."""
    verbs: dict[tuple[str, str, str], list[str]] = {}
    for each in lacking:
        verbs.setdefault((each.group, each.resource, each.name), []).append(each.verb)
    named = "; ".join(
        f"{', '.join(found)} {resource}" + (f" of API group {group}" if group else "")
        for (group, resource, _), found in verbs.items()
    )
    scope = f"in namespace {namespace}" if namespace else "in the whole cluster"
    report = problem if any(each.needed for each in lacking) else warning
    effect = "" if any(each.needed for each in lacking) else ", so it reports less"
    if account.name == "default":
        sentence = (
            f"{account.program} runs without a service account of its own, and the account of all such pods lacks"
            f" permissions {scope} that it needs: {named}{effect}"
        )
        install = INSTALL if account.program is EXTENDER else daemonsets.INSTALL["plugin"]
        return report(sentence, install, expected="serviceAccountName in the spec of its pods", found="none")
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": found} | ({"resourceNames": [name]} if name else {})
        for (group, resource, name), found in verbs.items()
    ]
    kind = "Role" if namespace else "ClusterRole"
    metadata = {"name": f"{account.name}-needs"} | ({"namespace": namespace} if namespace else {})
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules}
    bind = [f"--{kind.lower()}={account.name}-needs", f"--serviceaccount={account.namespace}:{account.name}"]
    return report(
        f"{account.program} lacks permissions {scope}: {named}{effect}",
        f"{fix.command('echo', msgspec.json.encode(role).decode())} | kubectl apply --filename=-",
        fix.kubectl("create", f"{kind.lower()}binding", f"{account.name}-needs", *bind, namespace=namespace),
    )


CHECKS = (Check(name="permissions", title="permissions in the cluster", findings=check_accounts, gather=_gather),)

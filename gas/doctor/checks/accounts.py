"""Check that the accounts of extender and plugin have the permissions that they need."""

from __future__ import annotations

from collections.abc import Iterator

from gas.doctor.findings import Finding, kubectl, ok, problem, unknown, warning
from gas.doctor.probe import Unseen
from gas.doctor.snapshot import Account, Permission, Snapshot

CHECK = "permissions"


def check_accounts(snapshot: Snapshot) -> Iterator[Finding]:
    """Check every account of the snapshot."""
    for account in snapshot.accounts:
        where = f"serviceaccount {account.namespace}/{account.name}"
        unseen = next((allowed for allowed in account.allowed.values() if isinstance(allowed, Unseen)), None)
        if unseen is not None:
            yield unknown(CHECK, where, f"its permissions are unknown: {unseen.why}", unseen.mend)
        missing = [permission for permission, allowed in account.allowed.items() if allowed is False]
        yield from (_missing(account, where, permission) for permission in missing)
        if unseen is None and not missing:
            yield ok(CHECK, where, f"it has all permissions that {account.program} needs")


def _missing(account: Account, where: str, permission: Permission) -> Finding:
    scope = f"in namespace {permission.namespace}" if permission.namespace else "in the whole cluster"
    group = f" of API group {permission.group}" if permission.group else ""
    resource = f"{permission.resource}.{permission.group}" if permission.group else permission.resource
    role, binding = ("role", "rolebinding") if permission.namespace else ("clusterrole", "clusterrolebinding")
    name = f"{account.name}-{permission.verb}-{permission.resource.replace('/', '-')}"
    create = [f"--verb={permission.verb}", f"--resource={_with_subresource(resource, permission)}"]
    bind = [f"--{role}={name}", f"--serviceaccount={account.namespace}:{account.name}"]
    commands = (
        kubectl("create", role, name, *create, namespace=permission.namespace),
        kubectl("create", binding, name, *bind, namespace=permission.namespace),
    )
    sentence = f"{account.program} lacks the permission to {permission.verb} {permission.resource}{group} {scope}"
    if permission.needed:
        return problem(CHECK, where, sentence, *commands)
    return warning(CHECK, where, f"{sentence}, so it reports less", *commands)


def _with_subresource(resource: str, permission: Permission) -> str:
    """Return the resource as ``kubectl create role`` expects it: RESOURCE.GROUP/SUBRESOURCE."""
    name, _, subresource = permission.resource.partition("/")
    if not subresource:
        return resource
    return f"{name}.{permission.group}/{subresource}" if permission.group else f"{name}/{subresource}"

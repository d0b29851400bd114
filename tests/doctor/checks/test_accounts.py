"""The check of what the accounts of the programs may do in the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from gas.daemon.permissions import Permission
from gas.doctor.checks.accounts import Account, permissions
from gas.doctor.findings import Unseen
from gas.doctor.programs import EXTENDER, PLUGIN, Program
from gas.objects.stored import DetailedContainer
from tests.doctor.snapshots import CASE, NOT_SEEN, assert_case, case, fine


def account(program: Program, allowed: bool | Unseen, permission: Permission) -> Account:
    return Account(program=program, namespace="default", name="gas", allowed={permission: allowed})


@pytest.mark.parametrize(
    CASE,
    [
        case(
            "cannot-bind",
            "problem",
            "kubectl create clusterrole gas-create-pods-binding --verb=create --resource=pods/binding",
            accounts=(account(EXTENDER, False, Permission("create", "pods/binding")),),
        ),
        case(
            "no-events",
            "warning",
            "reports less",
            accounts=(account(EXTENDER, False, Permission("create", "events", needed=False)),),
        ),
        case(
            "no-lease",
            "problem",
            "kubectl --namespace=default create role gas-get-leases --verb=get --resource=leases.coordination.k8s.io",
            accounts=(account(EXTENDER, False, Permission("get", "leases", "coordination.k8s.io", "default")),),
        ),
        case(
            "reviews-not-allowed",
            "unknown",
            "are unknown",
            accounts=(account(EXTENDER, NOT_SEEN, Permission("list", "pods")),),
        ),
        fine("every-permission", accounts=(account(PLUGIN, True, Permission("list", "pods")),)),
    ],
)
def test_the_permissions_of_accounts(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("permissions", changes, level, words)


def test_the_permissions_follow_the_flags_of_the_program() -> None:
    def needed(program: Program, *flags: str) -> set[str]:
        found = permissions(program, DetailedContainer(command=[program.name, *flags]), "gas")
        return {" ".join(filter(None, (each.verb, each.resource, each.namespace, each.name))) for each in found}

    plain = needed(EXTENDER)
    assert needed(EXTENDER, "--leader-elect", "--lease-name=one") - plain == {
        "create leases gas",
        "get leases gas one",
        "update leases gas one",
    }
    assert needed(PLUGIN) - needed(PLUGIN, "--write-node=nfd") == {
        "get nodes",
        "list nodes",
        "watch nodes",
        "patch nodes/status",
    }
    assert needed(PLUGIN, "--resource-manager=false") == set()

"""The check of what the accounts of the programs may do in the cluster."""

from __future__ import annotations

import pytest

from gas.daemon.permissions import Permission
from gas.doctor.checks.accounts import Account, permissions
from gas.doctor.findings import Unseen
from gas.doctor.programs import EXTENDER, PLUGIN, Program
from gas.objects.stored import DetailedContainer
from tests.doctor.snapshots import NOT_SEEN, faults


def account(program: Program, allowed: bool | Unseen, permission: Permission) -> Account:
    return Account(program=program, namespace="default", name="gas", allowed={permission: allowed})


@pytest.mark.parametrize(
    ("permission", "allowed", "level", "words"),
    [
        pytest.param(
            Permission("create", "pods/binding"),
            False,
            "problem",
            "kubectl create clusterrole gas-create-pods-binding --verb=create --resource=pods/binding",
            id="cannot-bind",
        ),
        pytest.param(Permission("create", "events", needed=False), False, "warning", "reports less", id="no-events"),
        pytest.param(
            Permission("get", "leases", "coordination.k8s.io", "default"),
            False,
            "problem",
            "kubectl --namespace=default create role gas-get-leases --verb=get --resource=leases.coordination.k8s.io",
            id="no-lease",
        ),
        pytest.param(Permission("list", "pods"), NOT_SEEN, "unknown", "are unknown", id="reviews-not-allowed"),
    ],
)
def test_a_missing_permission_is_reported(
    permission: Permission, allowed: bool | Unseen, level: str, words: str
) -> None:
    ((found, text),) = faults("permissions", accounts=(account(EXTENDER, allowed, permission),))
    assert found == level
    assert words in text


def test_an_account_with_every_permission_is_ok() -> None:
    accounts = (account(PLUGIN, True, Permission("list", "pods")),)
    assert faults("permissions", accounts=accounts) == []


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

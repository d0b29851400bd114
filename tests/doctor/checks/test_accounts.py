"""The check of what the accounts of the programs may do in the cluster."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from gas.daemon.permissions import Permission
from gas.doctor.checks.accounts import Account, permissions
from gas.doctor.findings import Unseen
from gas.objects.stored import DetailedContainer
from gas.programs import EXTENDER, PLUGIN, Program
from tests.doctor.snapshots import CASE, NOT_SEEN, assert_case, case, findings, fine, worst


def account(program: Program, allowed: bool | Unseen, *permissions: Permission, name: str = "gas") -> Account:
    return Account(program=program, namespace="default", name=name, allowed=dict.fromkeys(permissions, allowed))


LEASE = Permission("get", "leases", "coordination.k8s.io", "default", "one")


@pytest.mark.parametrize(
    CASE,
    [
        case(
            "cannot-bind",
            "problem",
            "kubectl create clusterrolebinding gas-needs --clusterrole=gas-needs --serviceaccount=default:gas",
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
            "kubectl --namespace=default create rolebinding gas-needs --role=gas-needs --serviceaccount=default:gas",
            accounts=(account(EXTENDER, False, LEASE),),
        ),
        case(
            "no-account",
            "problem",
            "runs without a service account of its own",
            accounts=(account(EXTENDER, False, Permission("create", "pods/binding"), name="default"),),
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


def test_all_that_an_account_lacks_in_the_cluster_is_one_role_and_no_more() -> None:
    lacking = (
        Permission("list", "pods"),
        Permission("patch", "pods"),
        Permission("create", "events", needed=False),
        Permission("list", "poddisruptionbudgets", "policy"),
    )
    (found,) = worst(findings("permissions", accounts=(account(EXTENDER, False, *lacking),)))
    said = "list, patch pods; create events; list poddisruptionbudgets of API group policy"
    assert found.message == f"gas-extender lacks permissions in the whole cluster: {said}"
    role, _ = found.fix
    echo, text, *apply = shlex.split(role)
    assert (echo, *apply) == ("echo", "|", "kubectl", "apply", "--filename=-")
    written = json.loads(text)
    assert (written["kind"], written["metadata"]) == ("ClusterRole", {"name": "gas-needs"})
    assert written["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "patch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list"]},
    ]


def test_a_role_names_the_only_object_that_a_permission_is_for() -> None:
    (found,) = worst(findings("permissions", accounts=(account(EXTENDER, False, LEASE),)))
    written = json.loads(shlex.split(found.fix[0])[1])
    assert (written["kind"], written["metadata"]["namespace"]) == ("Role", "default")
    assert written["rules"][0]["resourceNames"] == ["one"]


def test_no_rights_are_offered_to_the_account_that_pods_share() -> None:
    """Every pod of the namespace without an account of its own would have them."""
    for program in (EXTENDER, PLUGIN):
        seen = (account(program, False, Permission("list", "pods"), name="default"),)
        (found,) = worst(findings("permissions", accounts=seen))
        assert [each.partition(" --kustomize ")[0] for each in found.fix] == ["kubectl apply"]


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

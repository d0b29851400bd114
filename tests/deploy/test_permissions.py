"""The roles of deploy/ give the extender what its core and its parts declare, and nothing more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from gas.extender.command_line import parse_flags
from gas.extender.parts import CORE_PERMISSIONS, PARTS, permissions_of
from tests.deploy.manifests import COMPONENTS, DEPLOY, read

NAMESPACE = "default"


def rights(rules: Iterable[dict[str, Any]]) -> set[tuple[str, str, str, str]]:
    """Return (verb, resource, group, name) of rules; the name is empty for all objects."""
    return {
        (verb, resource, group, name)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def test_the_components_add_what_their_parts_declare_and_the_base_does_not_have() -> None:
    role = next(each for each in read(DEPLOY / "base/extender/role.yaml") if each["kind"] == "ClusterRole")
    lease = next(each for each in read(COMPONENTS / "leader-election/lease-role.yaml") if each["kind"] == "Role")
    patches = [
        each["value"]
        for component in COMPONENTS.glob("*/kustomization.yaml")
        for patch in read(component)[0].get("patches", ())
        if patch.get("target", {}).get("name") == "gas-handler"
        for each in yaml.safe_load(patch["patch"])
    ]
    everything = CORE_PERMISSIONS.union(*(part.permissions(parse_flags([]), NAMESPACE) for part in PARTS))
    declared = {(each.verb, each.resource, each.group, each.name) for each in everything}
    assert rights([*role["rules"], *lease["rules"], *patches]) == declared


def test_a_part_that_is_off_needs_no_permission() -> None:
    plain = permissions_of(parse_flags([]), NAMESPACE)
    resources = {"pods", "nodes", "pods/binding", "events", "deviceclasses", "persistentvolumeclaims"}
    assert {each.resource for each in plain} == resources
    elected = permissions_of(parse_flags(["--leader-elect", "--lease-name=one"]), NAMESPACE) - plain
    assert {(each.verb, each.name, each.namespace) for each in elected} == {
        ("create", "", NAMESPACE),
        ("get", "one", NAMESPACE),
        ("update", "one", NAMESPACE),
    }

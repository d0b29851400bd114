"""The extender's rules in deploy/, from the permissions that its core and its parts declare.

`scripts.manifest` writes them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gas.daemon.flags import flags_in
from gas.daemon.permissions import Permission
from gas.extender.command_line import parse_flags
from gas.extender.parts import CORE_PERMISSIONS, PARTS, permissions_of

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
ROLE = DEPLOY / "base/extender/role.yaml"
CHART_RULES = DEPLOY / "chart/files/extender-rules.yaml"

NAMESPACE = "default"
"""The namespace of the manifests. It matters to permissions in one namespace only."""

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")


def role_files() -> dict[Path, str]:
    """Return the role of the manifests, for the flags that they set, and the rules that the chart chooses from."""
    deployment = yaml.safe_load((DEPLOY / "base/extender/deployment.yaml").read_text(encoding="utf-8"))
    flags = parse_flags(deployment["spec"]["template"]["spec"]["containers"][0]["args"])
    always = permissions_of(parse_flags([]), NAMESPACE)
    in_order = [*rules_of(always), *rules_of(permissions_of(flags, NAMESPACE) - always)]  # as in the chart
    rules = "".join(f"  {line}\n" for line in _lines(in_order))
    role, found = re.subn(r"(?<=^rules:\n).*?(?=^---$)", rules, ROLE.read_text(encoding="utf-8"), flags=re.M | re.S)
    if found != 1:
        raise ValueError(f"{ROLE}: expected the line `rules:` before the first `---`")
    return {ROLE: role, CHART_RULES: _chart_rules()}


def rules_of(permissions: Iterable[Permission]) -> list[dict[str, Any]]:
    """Return the rules of a ClusterRole, one for each resource. Permissions in one namespace are left out."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for each in permissions:
        if not each.namespace and not each.name:
            verbs.setdefault((each.group, each.resource), set()).add(each.verb)
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": sorted(verbs[group, resource], key=VERBS.index)}
        for group, resource in sorted(verbs)
    ]


def permissions_by_flag() -> dict[str, frozenset[Permission]]:
    """Return what the flag that switches a part on adds to the permissions of the core."""
    flags = parse_flags([])
    return {
        next(flags_in(part.flags)).name: added
        for part in PARTS
        if part.flags is not None and (added := part.permissions(flags, NAMESPACE) - CORE_PERMISSIONS)
    }


def _chart_rules() -> str:
    always = permissions_of(parse_flags([]), NAMESPACE)
    lines = [
        "# Written by `make manifest`. The rules that every extender needs, and those that a flag adds.",
        "always:",
    ]
    lines += (f"  {line}" for line in _lines(rules_of(always)))
    lines.append("flags:")
    for flag, added in permissions_by_flag().items():
        if rules := rules_of(added):
            lines += [f"  {flag}:", *(f"    {line}" for line in _lines(rules))]
    return "\n".join(lines) + "\n"


def _lines(rules: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for rule in rules:
        (group,) = rule["apiGroups"]
        yield "- apiGroups: [" + (group or '""') + "]"
        yield f"  resources: [{', '.join(rule['resources'])}]"
        yield f"  verbs: [{', '.join(rule['verbs'])}]"

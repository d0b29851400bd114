"""What the API server adds to a pod and what it refuses in one."""

from __future__ import annotations

from typing import Any

from gas.sandbox.failure import Cause
from gas.sandbox.kinds import PODS
from gas.sandbox.quantities import amount_causes, is_extended, read_quantities

_EVICTED_AFTER = 300
_IMMUTABLE = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def with_defaults(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod with what every version of it has, created or updated. Raises ApiFailure (400)."""
    spec = {name: value for name, value in (pod.get("spec") or {}).items() if value not in (None, "")}
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [_container(container) for container in spec[field]]
    defaults = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
    }
    return pod | {"spec": defaults | spec}


def admitted(pod: dict[str, Any]) -> dict[str, Any]:
    """A new pod with what admission adds once, when it is created, and the status that every pod begins with."""
    added = {
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{condition}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _EVICTED_AFTER,
            }
            for condition in ("not-ready", "unreachable")
        ],
    }
    return pod | {"spec": added | pod["spec"], "status": {"phase": "Pending", "qosClass": "BestEffort"}}


def _container(container: dict[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    amounts = {
        field: read_quantities(PODS, resources[field]) for field in ("limits", "requests") if resources.get(field)
    }
    if "limits" in amounts:
        amounts["requests"] = amounts["limits"] | amounts.get("requests", {})
    return {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
        **container,
        "resources": {**resources, **amounts},
    }


def causes(pod: dict[str, Any]) -> list[Cause]:
    """What is wrong with the spec; empty when nothing is."""
    spec = pod["spec"]
    found = []
    if not spec.get("containers"):
        found.append(Cause("spec.containers", "Required value", "FieldValueRequired"))
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field, [])):
            place = f"spec.{field}[{index}]"
            for required in ("name", "image"):
                if not container.get(required):
                    found.append(Cause(f"{place}.{required}", "Required value", "FieldValueRequired"))
            if (name := container.get("name")) in names:
                found.append(Cause(f"{place}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate"))
            names.add(name or "")
            found += _resource_causes(f"{place}.resources", container["resources"])
    return found


def _resource_causes(place: str, resources: dict[str, Any]) -> list[Cause]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    found = []
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            found += amount_causes(f"{place}.{field}[{name}]", name, amount)
    for name, amount in requests.items():
        if not is_extended(name):
            continue
        if name not in limits:
            message = "Required value: Limit must be set for non overcommitable resources"
            found.append(Cause(f"{place}.limits", message, "FieldValueRequired"))
        elif limits[name] != amount:
            message = f'Invalid value: "{amount}": must be equal to {name} limit of {limits[name]}'
            found.append(Cause(f"{place}.requests", message))
    return found


def update_causes(before: dict[str, Any], after: dict[str, Any]) -> list[Cause]:
    """A pod's spec may hardly change: what of this update may not be."""
    if _fixed(before["spec"]) == _fixed(after["spec"]):
        old, new = before["spec"].get("tolerations", []), after["spec"].get("tolerations", [])
        if all(toleration in new for toleration in old):
            return []
    return [Cause("spec", _IMMUTABLE, "FieldValueForbidden")]


def _fixed(spec: dict[str, Any]) -> dict[str, Any]:
    fixed = {name: value for name, value in spec.items() if name not in ("activeDeadlineSeconds", "tolerations")}
    for field in ("containers", "initContainers"):
        fixed[field] = [
            {name: value for name, value in container.items() if name != "image"} for container in spec.get(field, [])
        ]
    return fixed

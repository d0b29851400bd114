"""Add the API server's defaults to objects, and check objects as it does."""

import re
from datetime import datetime
from typing import Any

from sandbox.api.failure import Cause, bad_request
from sandbox.api.kinds import EVENTS, LEASES, NODES, PODS, Kind, timestamp
from sandbox.api.quantities import amount_causes, is_extended, read_quantities

_LARGEST_ANNOTATIONS = 256 * 1024
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)

SERVER_SET = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
"""Metadata that a client may send back but not change."""


def new_metadata(kind: Kind, sent: Any, namespace: str | None, now: datetime, uid: str) -> dict[str, Any]:
    """Return the metadata of a new object. Raises ApiFailure (400) if it names another namespace."""
    metadata = read_metadata(kind, sent)
    if kind.namespaced and metadata.setdefault("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    for name in SERVER_SET:
        metadata.pop(name, None)
    return metadata | {"uid": uid, "creationTimestamp": timestamp(now)}


def read_metadata(kind: Kind, sent: Any) -> dict[str, Any]:
    """Return the metadata as sent, without nulls. Raises ApiFailure (400) if a label or annotation is not a string."""
    metadata = {name: value for name, value in (sent or {}).items() if value is not None and value != {}}
    for field in ("labels", "annotations"):
        for value in metadata.get(field, {}).values():
            if not isinstance(value, str):
                raise bad_request(
                    f'{kind.name} in version "v1" cannot be handled as a {kind.name}: json: cannot unmarshal a value '
                    f"into Go struct field ObjectMeta.metadata.{field} of type string"
                )
    return metadata


def _metadata_causes(metadata: dict[str, Any]) -> list[Cause]:
    causes = []
    name = metadata.get("name") or ""
    if not name:
        required = "Required value: name or generateName is required"
        causes.append(Cause("metadata.name", required, "FieldValueRequired"))
    elif len(name) > 253 or _SUBDOMAIN.fullmatch(name) is None:
        rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
        causes.append(Cause("metadata.name", f'Invalid value: "{name}": {rule}'))
    for key, value in (metadata.get("labels") or {}).items():
        causes += _key_causes("metadata.labels", key)
        if len(value) > 63:
            causes.append(Cause("metadata.labels", f'Invalid value: "{value}": must be no more than 63 characters'))
        elif value and _NAME_PART.fullmatch(value) is None:
            rule = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.'"
            causes.append(Cause("metadata.labels", f'Invalid value: "{value}": {rule}'))
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        causes += _key_causes("metadata.annotations", key)
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _LARGEST_ANNOTATIONS:
        message = f"Too long: may not be more than {_LARGEST_ANNOTATIONS} bytes"
        causes.append(Cause("metadata.annotations", message, "FieldValueTooLong"))
    return causes


def _key_causes(field: str, key: str) -> list[Cause]:
    prefix, slash, name = key.rpartition("/")
    if len(name) > 63 or _NAME_PART.fullmatch(name) is None:
        rule = "name part must consist of alphanumeric characters, '-', '_' or '.'"
        return [Cause(field, f'Invalid value: "{key}": {rule}')]
    if slash and _SUBDOMAIN.fullmatch(prefix) is None:
        return [Cause(field, f'Invalid value: "{key}": prefix part a lowercase RFC 1123 subdomain is expected')]
    return []


_IMMUTABLE = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def _pod_defaults(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the pod with the defaults that apply when it is created or updated. Raises ApiFailure (400)."""
    spec = {name: value for name, value in (pod.get("spec") or {}).items() if value not in (None, "")}
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [_container(container) for container in spec[field]]
    defaults = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler"}
    return pod | {"spec": defaults | spec}


def admit_pod(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a new pod with what admission adds once, on creation, and with its first status."""
    added = {"serviceAccountName": "default", "priority": 0}
    return pod | {"spec": added | pod["spec"], "status": {"phase": "Pending"}}


def _container(container: dict[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    amounts = {
        field: read_quantities(PODS, resources[field]) for field in ("limits", "requests") if resources.get(field)
    }
    if "limits" in amounts:
        amounts["requests"] = amounts["limits"] | amounts.get("requests", {})
    return {**container, "resources": {**resources, **amounts}}


def _pod_causes(pod: dict[str, Any]) -> list[Cause]:
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


def pod_update_causes(before: dict[str, Any], after: dict[str, Any]) -> list[Cause]:
    """Check an update of a pod: very little of its spec may change."""
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


def _node_defaults(node: dict[str, Any]) -> dict[str, Any]:
    """Return the node with canonical amounts; allocatable defaults to the capacity. Raises ApiFailure (400)."""
    status = dict(node.get("status") or {})
    for field in ("capacity", "allocatable"):
        if status.get(field):
            status[field] = read_quantities(NODES, status[field])
    if "capacity" in status:
        status.setdefault("allocatable", status["capacity"])
    return node | {"spec": node.get("spec") or {}, "status": status}


def _node_causes(node: dict[str, Any]) -> list[Cause]:
    return [
        cause
        for field in ("capacity", "allocatable")
        for name, amount in (node["status"].get(field) or {}).items()
        for cause in amount_causes(f"status.{field}.{name}", name, amount)
    ]


_MICRO_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}(Z|[+-][0-9]{2}:[0-9]{2})")


def _lease_defaults(lease: dict[str, Any]) -> dict[str, Any]:
    """Return the lease without nulls. Raises ApiFailure (400) if a time does not have exactly six decimals."""
    spec = {name: value for name, value in (lease.get("spec") or {}).items() if value is not None}
    for field in ("acquireTime", "renewTime"):
        if field in spec and _MICRO_TIME.fullmatch(spec[field]) is None:
            raise bad_request(
                f'Lease in version "v1" cannot be handled as a Lease: parsing time "{spec[field]}" '
                'as "2006-01-02T15:04:05.000000Z07:00"'
            )
    return lease | {"spec": spec}


def _event_causes(event: dict[str, Any]) -> list[Cause]:
    """Check that an event is in the namespace of its object, or in ``default`` if the object has none."""
    about = (event.get("involvedObject") or {}).get("namespace", "")
    if (about or "default") == event["metadata"]["namespace"]:
        return []
    return [Cause("involvedObject.namespace", f'Invalid value: "{about}": does not match event.namespace')]


def with_defaults(kind: Kind, value: dict[str, Any]) -> dict[str, Any]:
    """Return the object without nulls and with the defaults of its kind. Raises ApiFailure (400)."""
    bare = {name: part for name, part in value.items() if name not in ("kind", "apiVersion") and part is not None}
    return _DEFAULTS[kind](bare) if kind in _DEFAULTS else bare


def causes_of(kind: Kind, value: dict[str, Any]) -> list[Cause]:
    """Return everything that is invalid in an object; empty if it is valid."""
    return _metadata_causes(value["metadata"]) + (_CAUSES[kind](value) if kind in _CAUSES else [])


_DEFAULTS = {PODS: _pod_defaults, NODES: _node_defaults, LEASES: _lease_defaults}
_CAUSES = {PODS: _pod_causes, NODES: _node_causes, EVENTS: _event_causes}

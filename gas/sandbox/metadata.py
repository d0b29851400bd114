"""The part of an object that all kinds share: names, labels, annotations, and the fields that the server sets."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from gas.sandbox.failure import Cause, bad_request
from gas.sandbox.kinds import Kind

_LARGEST_ANNOTATIONS = 256 * 1024
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"

SERVER_SET = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
"""What a client may send back but never change."""


def timestamp(moment: datetime) -> str:
    """A moment as objects carry it, to the second: ``2026-01-31T12:00:00Z``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_timestamp(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def new_metadata(kind: Kind, sent: Any, namespace: str | None, now: datetime) -> dict[str, Any]:
    """The metadata of an object that is created. Raises ApiFailure (400) when it names another namespace."""
    metadata = read_metadata(kind, sent)
    if kind.namespaced and metadata.setdefault("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if not metadata.get("name") and metadata.get("generateName"):
        suffix = "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(5))
        metadata["name"] = f"{metadata['generateName']}{suffix}"
    for name in SERVER_SET:
        metadata.pop(name, None)
    return metadata | {"uid": str(uuid4()), "creationTimestamp": timestamp(now)}


def read_metadata(kind: Kind, sent: Any) -> dict[str, Any]:
    """The metadata as sent, without its nulls. Raises ApiFailure (400) where a type is not what it must be."""
    metadata = {name: value for name, value in (sent or {}).items() if value is not None and value != {}}
    for field in ("labels", "annotations"):
        for value in metadata.get(field, {}).values():
            if not isinstance(value, str):
                raise bad_request(
                    f'{kind.name} in version "v1" cannot be handled as a {kind.name}: json: cannot unmarshal a value '
                    f"into Go struct field ObjectMeta.metadata.{field} of type string"
                )
    return metadata


def metadata_causes(metadata: dict[str, Any]) -> list[Cause]:
    """What is wrong with the name, the labels and the annotations; empty when nothing is."""
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

"""What the API server refuses in a Lease, by which leaders are elected."""

from __future__ import annotations

import re
from typing import Any

from gas.sandbox.failure import Cause, bad_request

_MICRO_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}(Z|[+-][0-9]{2}:[0-9]{2})")


def with_defaults(lease: dict[str, Any]) -> dict[str, Any]:
    """The lease without nulls. Raises ApiFailure (400) for a time that has not exactly six digits of a second."""
    spec = {name: value for name, value in (lease.get("spec") or {}).items() if value is not None}
    for field in ("acquireTime", "renewTime"):
        if field in spec and _MICRO_TIME.fullmatch(spec[field]) is None:
            raise bad_request(
                f'Lease in version "v1" cannot be handled as a Lease: parsing time "{spec[field]}" '
                'as "2006-01-02T15:04:05.000000Z07:00"'
            )
    return lease | {"spec": spec}


def causes(lease: dict[str, Any]) -> list[Cause]:
    """What is wrong with the numbers; empty when nothing is."""
    spec, found = lease["spec"], []
    if spec.get("leaseDurationSeconds", 1) <= 0:
        message = f"Invalid value: {spec['leaseDurationSeconds']}: must be greater than 0"
        found.append(Cause("spec.leaseDurationSeconds", message))
    if spec.get("leaseTransitions", 0) < 0:
        message = f"Invalid value: {spec['leaseTransitions']}: must be greater than or equal to 0"
        found.append(Cause("spec.leaseTransitions", message))
    return found

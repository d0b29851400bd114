"""What the API server refuses in an Event."""

from __future__ import annotations

from typing import Any

from gas.sandbox.failure import Cause


def causes(event: dict[str, Any]) -> list[Cause]:
    """An event lives in the namespace of what it is about, or in ``default`` for what has none."""
    about = (event.get("involvedObject") or {}).get("namespace", "")
    if (about or "default") == event["metadata"]["namespace"]:
        return []
    return [Cause("involvedObject.namespace", f'Invalid value: "{about}": does not match event.namespace')]

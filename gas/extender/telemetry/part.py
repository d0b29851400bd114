"""The part that marks pods for the descheduler by what telemetry writes on nodes."""

from __future__ import annotations

from gas.extender.part import Part

TELEMETRY = Part(is_on=lambda _flags: True)

"""The part that makes kube-scheduler try refused pods again once cards are free."""

from __future__ import annotations

from gas.extender.part import Part

REQUEUING = Part(is_on=lambda _flags: True)

"""SharePods: the rights of an extender that makes their pods."""

from __future__ import annotations

from collections.abc import Iterator

from gas.doctor.check import Part, Permission
from gas.doctor.programs import EXTENDER, Program, is_on
from gas.objects.stored import DetailedContainer


def permissions(program: Program, container: DetailedContainer, _namespace: str) -> Iterator[Permission]:
    """Yield what an extender needs for SharePods."""
    if program is EXTENDER and is_on(container, "sharepods"):
        yield Permission("create", "pods")
        yield Permission("patch", "sharepods/status", "kubeshare.nthu")
        yield from (Permission(verb, "sharepods", "kubeshare.nthu") for verb in ("get", "list", "watch", "patch"))


PART = Part(permissions=permissions)

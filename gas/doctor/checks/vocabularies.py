"""Check that all programs speak the same vocabularies."""

from __future__ import annotations

from collections.abc import Iterator

from gas.doctor.check import Check, DoctorPart
from gas.doctor.findings import Finding, kubectl_pod, problem, summary
from gas.doctor.programs import EXTENDER, PLUGIN, vocabulary_flags
from gas.doctor.snapshot import Snapshot

CHECK = "vocabularies"


def check_vocabularies(snapshot: Snapshot) -> Iterator[Finding]:
    """Report plugins whose flags are not those of the extender; one of each kind."""
    extenders = snapshot.running(EXTENDER)
    wanted = vocabulary_flags(extenders[0][1]) if extenders else {}
    reported: set[tuple[str, str]] = set()
    for pod, container in [*extenders[1:], *(snapshot.running(PLUGIN) if extenders else ())]:
        for flag, value in vocabulary_flags(container).items():
            if entries_of(value) == entries_of(wanted[flag]) or (flag, value) in reported:
                continue
            reported.add((flag, value))
            yield problem(
                f"--{flag} is not that of the extender, so pods wait for resources that no node has, or get no cards",
                kubectl_pod(pod, "describe", "pod", note=f"its owner needs --{flag}={wanted[flag]}"),
                where=f"pod {pod.key}",
                expected=wanted[flag],
                found=value,
            )
    names = [each.name for each in snapshot.vocabularies]
    if len(names) > 1:
        yield summary(f"all speak {', '.join(names)}", where="extender and plugins", of="check")


def entries_of(value: str) -> frozenset[str]:
    """Return the entries of a list whose order does not matter."""
    return frozenset(each.strip() for each in value.split(","))


PART = DoctorPart(checks=(Check(name=CHECK, title="vocabularies", findings=check_vocabularies),))

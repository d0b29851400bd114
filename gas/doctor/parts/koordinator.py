"""Check that Koordinator's own programs do not write the resources that gas-plugin writes."""

from __future__ import annotations

from collections.abc import Iterator

from gas.doctor.check import Check
from gas.doctor.checks.plugins import VOCABULARIES
from gas.doctor.findings import Finding, problem
from gas.doctor.gpus import resource_writers
from gas.doctor.snapshot import Snapshot
from gas.vocabularies.koordinator.vocabulary import KOORDINATOR

WRITER = "koord"
"""The beginning of the names of Koordinator's field managers."""


def check_writers(snapshot: Snapshot) -> Iterator[Finding]:
    if KOORDINATOR.name not in [each.name for each in snapshot.vocabularies]:
        return
    for node in snapshot.checked_nodes:
        for manager, resource in resource_writers(node, KOORDINATOR.devices.owns_resource).items():
            if manager.startswith(WRITER):
                yield problem(
                    f"Koordinator writes {resource} on the node as well, so the amounts change to and fro",
                    "docs/from-koordinator.md   # switch off Koordinator's part",
                    where=f"node {node.name}",
                    expected="only gas-plugin writes it",
                    found=f"field manager {manager}",
                )


CHECKS = (Check(name=VOCABULARIES, findings=check_writers),)

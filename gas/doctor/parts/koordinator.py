"""Check that Koordinator's own programs do not do what gas does."""

from collections.abc import Iterator

from gas.doctor import fix
from gas.doctor.check import Check
from gas.doctor.checks.plugins import VOCABULARIES
from gas.doctor.checks.schedulers import edit
from gas.doctor.findings import Finding, Unseen, problem, warning
from gas.doctor.gpus import resource_writers
from gas.doctor.snapshot import Snapshot
from gas.programs import EXTENDER, Program, flag_values, image_name, starts
from gas.vocabularies.koordinator.vocabulary import KOORDINATOR

DEVICE_SHARE = "DeviceShare"  # of Koordinator's scheduler
WRITER = "koord"  # the beginning of the names of Koordinator's field managers


KOORDLET = Program("koordlet", lambda each: image_name(each) == "koordlet" or starts(each, "koordlet"))
MANAGERS_PLUGIN = "GPUDeviceResource"  # the part of koord-manager that writes GPUs on nodes and removes those of others

GATE_FLAGS = ("feature-gates", "runtime-hooks")
GATES = {"Accelerators": "reports GPUs", "GPUEnvInject": "gives cards to containers"}
"""Koordlet's feature gates for GPUs, and what it does with them."""


def check_koordinator(snapshot: Snapshot) -> Iterator[Finding]:
    if KOORDINATOR.name in [each.name for each in snapshot.vocabularies]:
        if snapshot.running(EXTENDER):
            yield from _device_share(snapshot)
        yield from _writers(snapshot)
        yield from _koordlet(snapshot)


def _writers(snapshot: Snapshot) -> Iterator[Finding]:
    for node in snapshot.checked_nodes:
        for manager, resource in resource_writers(node, KOORDINATOR.owns_resource).items():
            if manager.startswith(WRITER):
                yield problem(
                    f"Koordinator writes {resource} on the node as well, so the amounts change to and fro",
                    f"docs/from-koordinator.md   # give koord-manager -noderesource-plugins=*,-{MANAGERS_PLUGIN}",
                    where=f"node {node.name}",
                    expected="only gas-plugin writes it",
                    found=f"field manager {manager}",
                )


def _koordlet(snapshot: Snapshot) -> Iterator[Finding]:
    for pod, container in snapshot.running(KOORDLET):
        values = ",".join(each for flag in GATE_FLAGS for each in flag_values(container, flag)).split(",")
        for gate, effect in GATES.items():
            if f"{gate}=true" in values:
                yield warning(
                    f"koordlet {effect} as well as gas-plugin",
                    fix.daemonset(pod, "edit", note=f"set {gate}=false"),
                    where=f"pod {pod.key}",
                    found=f"{gate}=true",
                )


def _device_share(snapshot: Snapshot) -> Iterator[Finding]:
    for scheduler in snapshot.schedulers:
        seen = scheduler.configuration
        if seen is not None and not isinstance(seen, Unseen) and seen.enables(DEVICE_SHARE):
            yield problem(
                f"Koordinator's plugin {DEVICE_SHARE} decides cards as well as gas-extender",
                edit(scheduler, f"remove {DEVICE_SHARE} from the plugins of each profile"),
                where=scheduler.file,
            )


CHECKS = (Check(name=VOCABULARIES, findings=check_koordinator, programs=(KOORDLET,)),)

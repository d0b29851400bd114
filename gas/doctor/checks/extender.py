"""Whether an extender runs, is reached at the address that kube-scheduler has, and decides."""

from __future__ import annotations

from collections.abc import Iterator

from gas.doctor.commands import kubectl, of_pod
from gas.doctor.findings import Finding, ok, problem, unknown, warning
from gas.doctor.looked import Unseen
from gas.doctor.programs import Program
from gas.doctor.snapshot import Call, ServiceSeen, Snapshot

CHECK = "extender"
INSTALL = "kubectl apply --kustomize deploy/overlays/extender   # or what you made of it: docs/deploy.md, 3"
ON_CONTROL_PLANE = "sudo gas doctor   # on the control-plane node, which can reach it"


def check_extender(snapshot: Snapshot) -> Iterator[Finding]:
    yield from _pods(snapshot)
    for call in snapshot.calls:
        if isinstance(call.service, ServiceSeen):
            yield from _service(call.service)
        if call.connected:
            yield from _answer(call)
        else:
            yield _not_reached(call)


def _pods(snapshot: Snapshot) -> Iterator[Finding]:
    ours, original = snapshot.running(Program.EXTENDER), snapshot.running(Program.ORIGINAL_EXTENDER)
    ready = [seen for seen, _ in ours if seen.details.is_ready]
    if ready:
        yield ok(CHECK, ready[0].where, "an extender runs and is ready")
    elif ours:
        seen = ours[0][0]
        yield problem(
            CHECK,
            seen.where,
            "an extender runs and none is ready, so nothing is decided",
            of_pod(seen.pod, "describe", "pod"),
            of_pod(seen.pod, "logs"),
            expected="condition Ready",
            found=f"phase {seen.details.status.phase if seen.details.status else 'not known'}, not ready",
        )
    elif not original and not isinstance(snapshot.pods, Unseen) and not any(map(_says_more, snapshot.calls)):
        yield problem(CHECK, "extender", "no pod runs an extender, and none was reached elsewhere", INSTALL)
    for seen, _ in original:
        scale = ("scale", "deployment", "gpu-aware-scheduling", "--replicas=0")
        beside = "runs beside ours, and only one of the two may be asked" if ours else "runs in the place of ours"
        yield warning(
            CHECK,
            seen.where,
            f"Intel's GPU Aware Scheduling {beside}",
            kubectl(*scale, namespace=seen.pod.metadata.namespace) if ours else INSTALL,
        )


def _says_more(call: Call) -> bool:
    """Whether what came of calling it says that an extender is there, or that none is."""
    return bool(call.connected or (call.scheduler.is_here and call.tried))


def _service(service: ServiceSeen) -> Iterator[Finding]:
    where = f"service {service.namespace}/{service.name}"
    if not service.exists:
        yield problem(CHECK, where, "kube-scheduler is told to call a Service that is not there", INSTALL)
    elif not service.ready:
        yield problem(
            CHECK,
            where,
            "the Service that kube-scheduler calls leads to no extender that is ready",
            kubectl("describe", "service", service.name, namespace=service.namespace),
            expected="at least one ready endpoint",
            found="none",
        )


def _not_reached(call: Call) -> Finding:
    """From another machine than the scheduler's an address may well be out of reach."""
    told = f"the extender was not reached: {call.failure}"
    if call.scheduler.is_here and call.tried:
        return problem(CHECK, call.entry.url_prefix, told, INSTALL, "systemctl status gas-extender")
    return unknown(CHECK, call.entry.url_prefix, f"{told}; that may be so from this machine only", ON_CONTROL_PLANE)


def _answer(call: Call) -> Iterator[Finding]:
    where = call.entry.url_prefix
    if call.not_verified:
        return  # told among the certificates
    if call.reply is None:
        if isinstance(call.client, Unseen) or isinstance(call.key, Unseen):
            yield unknown(
                CHECK, where, f"reached at {call.connected}, but not asked: {call.not_asked}", ON_CONTROL_PLANE
            )
        else:
            yield ok(CHECK, where, f"reached at {call.connected}; {call.not_asked}")
    elif call.reply.error:
        yield problem(
            CHECK,
            where,
            f"reached at {call.connected}, and decides nothing",
            "kubectl --namespace=default logs deployment/gpu-aware-scheduling",
            expected="an answer to filter",
            found=call.reply.error,
        )
    else:
        yield ok(CHECK, where, f"reached at {call.connected}, and decides")

"""Check that an extender runs, can be reached at kube-scheduler's address for it, and decides."""

from __future__ import annotations

from collections.abc import Iterator

from gas.doctor.findings import Finding, kubectl, kubectl_pod, ok, problem, unknown, warning
from gas.doctor.probe import Unseen
from gas.doctor.programs import Program
from gas.doctor.snapshot import Call, ServiceSeen, Snapshot

CHECK = "extender"
INSTALL = "kubectl apply --kustomize deploy/overlays/extender   # or your own overlay: docs/deploy.md, 3"
ON_CONTROL_PLANE = "sudo gas doctor   # on the control-plane node, from which kube-scheduler calls it"


def check_extender(snapshot: Snapshot) -> Iterator[Finding]:
    """Check the extender's pods, its Services, and the outcome of calling it."""
    yield from _pods(snapshot)
    for call in snapshot.calls:
        if isinstance(call.service, ServiceSeen):
            yield from _service(call.service)
        if call.connected:
            yield from _response(call)
        else:
            yield _not_reached(call)


def _pods(snapshot: Snapshot) -> Iterator[Finding]:
    ours, original = snapshot.running(Program.EXTENDER), snapshot.running(Program.ORIGINAL_EXTENDER)
    ready = [pod for pod, _ in ours if pod.is_ready]
    if ready:
        yield ok(CHECK, f"pod {ready[0].key}", "an extender is running and ready")
    elif ours:
        pod = ours[0][0]
        yield problem(
            CHECK,
            f"pod {pod.key}",
            "an extender is running, but none is ready, so no GPU pod is placed",
            kubectl_pod(pod, "describe", "pod"),
            kubectl_pod(pod, "logs"),
            expected="condition Ready",
            found=f"phase {pod.status.phase if pod.status else 'unknown'}, not ready",
        )
    elif not original and not isinstance(snapshot.pods, Unseen) and not any(map(_is_conclusive, snapshot.calls)):
        yield problem(CHECK, "extender", "no pod runs an extender, and none was reached outside the cluster", INSTALL)
    for pod, _ in original:
        scale = ("scale", "deployment", "gpu-aware-scheduling", "--replicas=0")
        place = "runs beside gas-extender, but only one of them may decide" if ours else "runs instead of gas-extender"
        yield warning(
            CHECK,
            f"pod {pod.key}",
            f"Intel's GPU Aware Scheduling {place}",
            kubectl(*scale, namespace=pod.metadata.namespace) if ours else INSTALL,
        )


def _is_conclusive(call: Call) -> bool:
    """Return whether the outcome of the call shows that an extender exists, or that none does."""
    return bool(call.connected or (call.scheduler.is_here and call.tried))


def _service(service: ServiceSeen) -> Iterator[Finding]:
    where = f"service {service.namespace}/{service.name}"
    if not service.exists:
        yield problem(CHECK, where, "kube-scheduler is configured to call this Service, but it does not exist", INSTALL)
    elif not service.ready:
        yield problem(
            CHECK,
            where,
            "kube-scheduler calls this Service, but it has no ready extender behind it",
            kubectl("describe", "service", service.name, namespace=service.namespace),
            expected="at least one ready endpoint",
            found="none",
        )


def _not_reached(call: Call) -> Finding:
    """Report that there was no connection. It may be reachable only from the scheduler's machine."""
    sentence = f"the extender cannot be reached: {call.failure}"
    if call.scheduler.is_here and call.tried:
        return problem(CHECK, call.entry.url_prefix, sentence, INSTALL, "systemctl status gas-extender")
    sentence += "; it may be reachable from another machine"
    return unknown(CHECK, call.entry.url_prefix, sentence, ON_CONTROL_PLANE)


def _response(call: Call) -> Iterator[Finding]:
    where = call.entry.url_prefix
    if call.not_verified:
        return  # reported with the certificates
    if call.reply is None:
        if isinstance(call.client, Unseen) or isinstance(call.key, Unseen):
            sentence = f"reached at {call.connected}, but no filter request was sent: {call.not_asked}"
            yield unknown(CHECK, where, sentence, ON_CONTROL_PLANE)
        else:
            yield ok(CHECK, where, f"reached at {call.connected}; {call.not_asked}")
    elif call.reply.error:
        yield problem(
            CHECK,
            where,
            f"reached at {call.connected}, but it does not decide",
            "kubectl --namespace=default logs deployment/gpu-aware-scheduling",
            expected="a decision about a filter request",
            found=call.reply.error,
        )
    else:
        yield ok(CHECK, where, f"reached at {call.connected}; it decides")

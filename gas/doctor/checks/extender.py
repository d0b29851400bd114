"""Check that an extender runs, can be reached at kube-scheduler's address for it, and decides."""

from __future__ import annotations

from collections.abc import Iterator

from gas.doctor.check import Check, DoctorPart
from gas.doctor.findings import Finding, Unseen, about, kubectl, kubectl_pod, ok, problem, unknown, warning
from gas.doctor.programs import EXTENDER, ORIGINAL_EXTENDER
from gas.doctor.snapshot import Call, ServiceSeen, Snapshot

CHECK = "extender"
INSTALL = "kubectl apply --kustomize deploy/overlays/extender   # or your own overlay: docs/deploy.md, 3"
ON_CONTROL_PLANE = "sudo gas doctor   # on the control-plane node, from which kube-scheduler calls it"


def check_extender(snapshot: Snapshot) -> Iterator[Finding]:
    """Check the extender's pods, its Services, and the outcome of calling it."""
    yield from _pods(snapshot)
    for call in snapshot.calls:
        if isinstance(call.service, ServiceSeen):
            yield from about(f"service {call.service.namespace}/{call.service.name}", _service(call.service))
        yield from about(call.entry.url_prefix, _response(call))


def _pods(snapshot: Snapshot) -> Iterator[Finding]:
    ours, original = snapshot.running(EXTENDER), snapshot.running(ORIGINAL_EXTENDER)
    ready = [pod for pod, _ in ours if pod.is_ready]
    if ready:
        yield ok("an extender is running and ready", where=f"pod {ready[0].key}")
    elif ours:
        pod = ours[0][0]
        yield problem(
            "an extender is running, but none is ready, so no GPU pod is placed",
            kubectl_pod(pod, "describe", "pod"),
            kubectl_pod(pod, "logs"),
            where=f"pod {pod.key}",
            expected="condition Ready",
            found=f"phase {pod.status.phase if pod.status else 'unknown'}, not ready",
        )
    elif not original and not isinstance(snapshot.pods, Unseen) and not any(map(_is_conclusive, snapshot.calls)):
        yield problem("no pod runs an extender, and none was reached outside the cluster", INSTALL, where="extender")
    for pod, _ in original:
        scale = ("scale", "deployment", "gpu-aware-scheduling", "--replicas=0")
        place = "runs beside gas-extender, but only one of them may decide" if ours else "runs instead of gas-extender"
        yield warning(
            f"Intel's GPU Aware Scheduling {place}",
            kubectl(*scale, namespace=pod.metadata.namespace) if ours else INSTALL,
            where=f"pod {pod.key}",
        )


def _is_conclusive(call: Call) -> bool:
    """Return whether the outcome of the call shows that an extender exists, or that none does."""
    return bool(call.connected or (call.scheduler.is_here and call.tried))


def _service(service: ServiceSeen) -> Iterator[Finding]:
    if not service.exists:
        yield problem("kube-scheduler is configured to call this Service, but it does not exist", INSTALL)
    elif not service.ready:
        yield problem(
            "kube-scheduler calls this Service, but it has no ready extender behind it",
            kubectl("describe", "service", service.name, namespace=service.namespace),
            expected="at least one ready endpoint",
            found="none",
        )


def _response(call: Call) -> Iterator[Finding]:
    """Judge the call. Without a connection, the extender may still be reachable from the scheduler's machine."""
    if not call.connected:
        sentence = f"the extender cannot be reached: {call.failure}"
        if call.scheduler.is_here and call.tried:
            yield problem(sentence, INSTALL, "systemctl status gas-extender")
        else:
            yield unknown(f"{sentence}; it may be reachable from another machine", ON_CONTROL_PLANE)
    elif call.not_verified:
        pass  # reported with the certificates
    elif call.reply is None and (isinstance(call.client, Unseen) or isinstance(call.key, Unseen)):
        sentence = f"reached at {call.connected}, but no filter request was sent: {call.not_asked}"
        yield unknown(sentence, ON_CONTROL_PLANE)
    elif call.reply is None:
        yield ok(f"reached at {call.connected}; {call.not_asked}")
    elif call.reply.error:
        yield problem(
            f"reached at {call.connected}, but it does not decide",
            "kubectl --namespace=default logs deployment/gpu-aware-scheduling",
            expected="a decision about a filter request",
            found=call.reply.error,
        )
    else:
        yield ok(f"reached at {call.connected}; it decides")


PART = DoctorPart(checks=(Check(name=CHECK, title="the extender", findings=check_extender),))

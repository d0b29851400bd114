"""Check that kube-scheduler's configuration lists the extender, with the settings that it needs."""

from __future__ import annotations

from collections.abc import Iterator

from configurator.scheduler_configuration import CARD_RESOURCES, ExtenderEntry
from gas.doctor.findings import Finding, command, kubectl, kubectl_pod, ok, problem, unknown, warning
from gas.doctor.probe import Unseen
from gas.doctor.programs import Program, flag_value, is_on
from gas.doctor.snapshot import Scheduler, Snapshot
from gas.doctor.spoken import spoken_vocabularies

CHECK = "scheduler-configuration"
PREEMPT = "scheduler/preempt"
PRIORITIZE = "scheduler/prioritize"
INSTALL_WEBHOOKS = "kubectl apply --kustomize deploy/overlays/admission   # or your own overlay: docs/admission.md"
CONFIGURE = "sudo gas-configurator   # on the control-plane node"


def check_schedulers(snapshot: Snapshot) -> Iterator[Finding]:
    """Check every scheduler. Those that share a ``schedulerName`` must all call the extender, or none."""
    if isinstance(snapshot.pods, Unseen):
        yield unknown(CHECK, "kube-scheduler's pods", snapshot.pods.why, snapshot.pods.mend)
    for pod, _ in snapshot.running(Program.SCHEDULER):
        if not pod.is_ready:
            yield problem(
                CHECK,
                f"pod {pod.key}",
                "this kube-scheduler is not ready; it does not start if it cannot read its configuration",
                kubectl_pod(pod, "logs"),
                kubectl_pod(pod, "describe", "pod"),
            )
    if not snapshot.schedulers:
        yield unknown(
            CHECK,
            "kube-scheduler",
            f"none was found: {snapshot.control_plane}/manifests/kube-scheduler.yaml is not on this machine, and no"
            " pod of the cluster runs kube-scheduler",
            "sudo gas doctor   # on the control-plane node",
            "gas doctor --scheduler-config=FILE   # if kube-scheduler is not a static pod",
            "less docs/chart.md   # on a managed control plane: a scheduler of its own",
        )
        return
    served = _names_with_extender(snapshot)
    for scheduler in snapshot.schedulers:
        configuration = scheduler.configuration
        if isinstance(configuration, Unseen) and scheduler.is_like_here:
            yield ok(
                CHECK,
                scheduler.name,
                "has the same command as the one here; run gas doctor on its node to check its files",
            )
        elif isinstance(configuration, Unseen):
            yield unknown(CHECK, scheduler.name, configuration.why, configuration.mend)
        elif configuration is None or not configuration.gpu_extenders:
            own = configuration.scheduler_names if configuration is not None else frozenset({"default-scheduler"})
            if served and own.isdisjoint(served):
                pods = " or ".join(sorted(served))
                yield ok(CHECK, scheduler.name, f"does not call the extender; GPU pods need schedulerName {pods}")
            else:
                yield _lists_none(scheduler)
        else:
            yield from _entries(scheduler, configuration.gpu_extenders, snapshot)


def _names_with_extender(snapshot: Snapshot) -> frozenset[str]:
    return frozenset(
        name
        for each in snapshot.schedulers
        if each.configuration is not None and not isinstance(each.configuration, Unseen)
        if each.configuration.gpu_extenders
        for name in each.configuration.scheduler_names
    )


def _lists_none(scheduler: Scheduler) -> Finding:
    is_bare = scheduler.configuration is None
    return problem(
        CHECK,
        scheduler.name,
        "kube-scheduler does not call the extender, so it places GPU pods by the sums of whole nodes, without cards",
        CONFIGURE,
        expected=f"an entry under extenders with managedResources {' and '.join(CARD_RESOURCES)}",
        found="it runs without --config" if is_bare else f"none in {scheduler.file}",
    )


def _entries(scheduler: Scheduler, entries: list[ExtenderEntry], snapshot: Snapshot) -> Iterator[Finding]:
    where = scheduler.file
    if len(entries) > 1:
        yield problem(
            CHECK,
            where,
            "several extenders are listed for GPUs; each would decide without knowing the others' decisions",
            _edit(scheduler, "keep one of them"),
            expected="one entry under extenders with gpu.intel.com resources",
            found=", ".join(entry.url_prefix or "no urlPrefix" for entry in entries),
        )
    for entry in entries:
        faults = [
            *_resources(scheduler, entry, snapshot),
            *_verbs(scheduler, entry),
            *_settings(scheduler, entry, snapshot),
        ]
        faults += _preemption(scheduler, entry, snapshot)
        faults += _scores(scheduler, entry, snapshot)
        faults += _tls(scheduler, entry)
        yield from faults
        if not faults:
            yield ok(CHECK, where, f"lists the extender at {entry.url_prefix}")


def _resources(scheduler: Scheduler, entry: ExtenderEntry, snapshot: Snapshot) -> Iterator[Finding]:
    for resource in spoken_vocabularies(snapshot).managed_resources:
        ignored = entry.managed.get(resource)
        if ignored is None:
            used = _is_offered(snapshot, resource)
            yield (problem if used else warning)(
                CHECK,
                scheduler.file,
                f"pods that ask for {resource} only are placed without the extender"
                + (", and nodes offer it" if used else ""),
                _edit(scheduler, f"managedResources: name: {resource}, ignoredByScheduler: false"),
                expected=f"{resource} among managedResources",
                found=", ".join(entry.managed) or "no managedResources",
            )
        elif ignored:
            yield warning(
                CHECK,
                scheduler.file,
                f"kube-scheduler itself does not count {resource}, so it sends the extender nodes that have none",
                _edit(scheduler, "ignoredByScheduler: false"),
                expected=f"ignoredByScheduler: false for {resource}",
                found="ignoredByScheduler: true",
            )


def _is_offered(snapshot: Snapshot, resource: str) -> bool:
    if isinstance(snapshot.nodes, Unseen):
        return False
    return any(node.status and resource in (node.status.allocatable or {}) for node in snapshot.nodes)


def _verbs(scheduler: Scheduler, entry: ExtenderEntry) -> Iterator[Finding]:
    for key, expected, found in (
        ("filterVerb", "scheduler/filter", entry.filter_verb),
        ("bindVerb", "scheduler/bind", entry.bind_verb),
        ("prioritizeVerb", PRIORITIZE if entry.prioritize_verb else "", entry.prioritize_verb),
        ("preemptVerb", PREEMPT if entry.preempt_verb else "", entry.preempt_verb),
    ):
        if found.strip("/") != expected:
            yield problem(
                CHECK,
                scheduler.file,
                f"{key} is not what the extender serves"
                + (", so pods are bound without cards" if key == "bindVerb" else ""),
                _edit(scheduler, f"{key}: {expected}" if expected else f"no {key}"),
                expected=expected or f"no {key}",
                found=found or f"no {key}",
            )


def _preemption(scheduler: Scheduler, entry: ExtenderEntry, snapshot: Snapshot) -> Iterator[Finding]:
    serves = [is_on(container, "preemption", default=False) for _, container in snapshot.running(Program.EXTENDER)]
    if entry.preempt_verb.strip("/") == PREEMPT and serves and not all(serves):
        yield problem(
            CHECK,
            scheduler.file,
            "the extender does not serve preemptVerb, so no GPU pod can make room for itself by its priority",
            _edit(scheduler, "no preemptVerb, or start gas-extender with --preemption"),
            expected="--preemption of gas-extender",
            found="it is not set",
        )
    elif not entry.preempt_verb and any(serves):
        yield warning(
            CHECK,
            scheduler.file,
            "kube-scheduler chooses by the sums of nodes which pods it evicts for a GPU pod of higher priority, so that"
            " pod may still find no card",
            _edit(scheduler, f"preemptVerb: {PREEMPT}"),
            expected=f"preemptVerb: {PREEMPT}, because the extender serves it",
            found="no preemptVerb",
        )


def scoring_extenders(snapshot: Snapshot) -> list[bool]:
    """Return for each running extender whether it scores nodes."""
    none = "none"
    return [
        (flag_value(container, "node-score") or none) != none for _, container in snapshot.running(Program.EXTENDER)
    ]


def _scores(scheduler: Scheduler, entry: ExtenderEntry, snapshot: Snapshot) -> Iterator[Finding]:
    scored = scoring_extenders(snapshot)
    if entry.prioritize_verb.strip("/") == PRIORITIZE and scored and not all(scored):
        yield warning(
            CHECK,
            scheduler.file,
            "the extender does not serve prioritizeVerb, so kube-scheduler logs an error for every GPU pod",
            _edit(scheduler, "no prioritizeVerb, or start gas-extender with --node-score=balance"),
            expected="--node-score of gas-extender",
            found="it is not set",
        )
    elif not entry.prioritize_verb and any(scored):
        yield warning(
            CHECK,
            scheduler.file,
            "kube-scheduler does not ask the extender which node is best for a GPU pod, so fewer cards are given out",
            _edit(scheduler, f"prioritizeVerb: {PRIORITIZE}"),
            expected=f"prioritizeVerb: {PRIORITIZE}, because the extender serves it",
            found="no prioritizeVerb",
        )


def _settings(scheduler: Scheduler, entry: ExtenderEntry, snapshot: Snapshot) -> Iterator[Finding]:
    if entry.ignorable:
        yield _ignorable(scheduler, snapshot)
    if not entry.node_cache_capable:
        yield warning(
            CHECK,
            scheduler.file,
            "kube-scheduler sends the extender whole nodes with every request, which is slow in large clusters",
            _edit(scheduler, "nodeCacheCapable: true"),
            expected="nodeCacheCapable: true",
            found="nodeCacheCapable: false",
        )


def _ignorable(scheduler: Scheduler, snapshot: Snapshot) -> Finding:
    """Report that kube-scheduler continues without the extender; the bind webhook limits the damage."""
    seen = snapshot.webhooks
    if not isinstance(seen, Unseen) and any(webhook.is_for_bindings for webhook in seen):
        return warning(
            CHECK,
            scheduler.file,
            "while the extender is unavailable, kube-scheduler binds GPU pods itself, without cards; if only its"
            " response is lost, the bind webhook gives them cards",
            _edit(scheduler, "ignorable: false"),
            expected="ignorable: false",
            found="ignorable: true",
        )
    return warning(
        CHECK,
        scheduler.file,
        "while the extender is unavailable, or if it fails to bind a pod, kube-scheduler binds GPU pods itself,"
        " without cards",
        _edit(scheduler, "ignorable: false"),
        INSTALL_WEBHOOKS,
        expected="ignorable: false, or at least the bind webhook",
        found="ignorable: true" + ("" if isinstance(seen, Unseen) else ", and no webhook for bindings"),
    )


def _tls(scheduler: Scheduler, entry: ExtenderEntry) -> Iterator[Finding]:
    tls = entry.tls_config
    if not entry.url_prefix.startswith("https://") or not entry.enable_https:
        yield problem(
            CHECK,
            scheduler.file,
            "the extender serves TLS only",
            _edit(scheduler, "urlPrefix: https://…, enableHTTPS: true"),
            expected="urlPrefix that begins with https://, and enableHTTPS: true",
            found=f"urlPrefix: {entry.url_prefix or 'none'}, enableHTTPS: {str(entry.enable_https).lower()}",
        )
    if tls is None or not (tls.cert_file and tls.key_file):
        yield problem(
            CHECK,
            scheduler.file,
            "kube-scheduler has no client certificate for the extender, which refuses it",
            CONFIGURE,
            expected="certFile and keyFile in tlsConfig",
            found="neither" if tls is None or not (tls.cert_file or tls.key_file) else "one of them",
        )
        return
    if tls.insecure or not (tls.ca_file or tls.ca_data):
        yield warning(
            CHECK,
            scheduler.file,
            "kube-scheduler does not verify the extender's certificate: any server at that address can place GPU pods",
            _edit(scheduler, "tlsConfig: insecure: false, caFile: the authority of the extender's certificate"),
            expected="insecure: false and a caFile in tlsConfig",
            found="insecure: true" if tls.insecure else "no caFile",
        )


def _edit(scheduler: Scheduler, what: str) -> str:
    note = f"{what}; then restart kube-scheduler"
    if scheduler.config_map is not None:
        namespace, name = scheduler.config_map
        return kubectl("edit", "configmap", name, namespace=namespace, note=note)
    return command("sudoedit", scheduler.file, note=note)

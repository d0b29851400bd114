"""Whether kube-scheduler's configuration lists the extender, in the form that works."""

from __future__ import annotations

from collections.abc import Iterator

from gas.doctor.commands import command, kubectl, of_pod
from gas.doctor.findings import Finding, ok, problem, unknown, warning
from gas.doctor.looked import Unseen
from gas.doctor.programs import Program
from gas.doctor.scheduler_configuration import ExtenderEntry
from gas.doctor.snapshot import Scheduler, Snapshot
from gas.intel import names

CHECK = "scheduler-configuration"
CONFIGURE = "sudo gas-configurator   # on the control-plane node"


def check_schedulers(snapshot: Snapshot) -> Iterator[Finding]:
    """Every scheduler of a name that some scheduler with an extender has must have it, too."""
    if isinstance(snapshot.pods, Unseen):
        yield unknown(CHECK, "kube-scheduler's pods", snapshot.pods.why, snapshot.pods.mend)
    for seen, _ in snapshot.running(Program.SCHEDULER):
        if not seen.details.is_ready:
            yield problem(
                CHECK,
                seen.where,
                "this kube-scheduler is not ready; one whose configuration cannot be read does not start",
                of_pod(seen.pod, "logs"),
                of_pod(seen.pod, "describe", "pod"),
            )
    if not snapshot.schedulers:
        yield unknown(
            CHECK,
            "kube-scheduler",
            f"none can be seen: there is no {snapshot.control_plane}/manifests/kube-scheduler.yaml on this machine, and"
            " no pod of the cluster runs one that may be looked at",
            "sudo gas doctor   # on the control-plane node",
            "gas doctor --scheduler-config=FILE   # where kube-scheduler is no static pod",
            "less docs/chart.md   # on a managed control plane: a scheduler of its own",
        )
        return
    served = _names_with_extender(snapshot)
    for scheduler in snapshot.schedulers:
        configuration = scheduler.configuration
        if isinstance(configuration, Unseen) and scheduler.is_like_here:
            yield ok(CHECK, scheduler.name, "is started as the one here is; gas doctor on its node can see its files")
        elif isinstance(configuration, Unseen):
            yield unknown(CHECK, scheduler.name, configuration.why, configuration.mend)
        elif configuration is None or not configuration.gpu_extenders:
            own = configuration.scheduler_names if configuration is not None else frozenset({"default-scheduler"})
            if served and own.isdisjoint(served):
                pods = " or ".join(sorted(served))
                yield ok(CHECK, scheduler.name, f"calls no extender; GPU pods need schedulerName {pods}")
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
        "kube-scheduler does not call the extender, so GPU pods are placed by the sums of whole nodes and get no cards",
        CONFIGURE,
        expected=f"an entry under extenders with managedResources {names.PREFIX}i915 and {names.PREFIX}xe",
        found="it is started without --config" if is_bare else f"none in {scheduler.file}",
    )


def _entries(scheduler: Scheduler, entries: list[ExtenderEntry], snapshot: Snapshot) -> Iterator[Finding]:
    where = scheduler.file
    if len(entries) > 1:
        yield problem(
            CHECK,
            where,
            "more than one extender is listed for GPUs; each would decide without knowing of the other",
            _edit(scheduler, "keep one of them"),
            expected="one entry under extenders with gpu.intel.com resources",
            found=", ".join(entry.url_prefix or "no urlPrefix" for entry in entries),
        )
    for entry in entries:
        faults = [*_resources(scheduler, entry, snapshot), *_verbs(scheduler, entry), *_manners(scheduler, entry)]
        faults += _tls(scheduler, entry)
        yield from faults
        if not faults:
            yield ok(CHECK, where, f"lists the extender at {entry.url_prefix}")


def _resources(scheduler: Scheduler, entry: ExtenderEntry, snapshot: Snapshot) -> Iterator[Finding]:
    for resource in names.COUNT_RESOURCES:
        full = names.PREFIX + resource
        ignored = entry.managed.get(full)
        if ignored is None:
            used = _is_offered(snapshot, full)
            yield (problem if used else warning)(
                CHECK,
                scheduler.file,
                f"pods that ask for {full} alone are placed without the extender"
                + (", and nodes offer it" if used else ""),
                _edit(scheduler, f"managedResources: name: {full}, ignoredByScheduler: false"),
                expected=f"{full} among managedResources",
                found=", ".join(entry.managed) or "no managedResources",
            )
        elif ignored:
            yield warning(
                CHECK,
                scheduler.file,
                f"kube-scheduler itself does not count {full}, so that it shows the extender nodes without any",
                _edit(scheduler, "ignoredByScheduler: false"),
                expected=f"ignoredByScheduler: false for {full}",
                found="ignoredByScheduler: true",
            )


def _is_offered(snapshot: Snapshot, resource: str) -> bool:
    if isinstance(snapshot.nodes, Unseen):
        return False
    return any(seen.node.status and resource in (seen.node.status.allocatable or {}) for seen in snapshot.nodes)


def _verbs(scheduler: Scheduler, entry: ExtenderEntry) -> Iterator[Finding]:
    for key, expected, found in (
        ("filterVerb", "scheduler/filter", entry.filter_verb),
        ("bindVerb", "scheduler/bind", entry.bind_verb),
        ("prioritizeVerb", "", entry.prioritize_verb),
        ("preemptVerb", "", entry.preempt_verb),
    ):
        if found.strip("/") != expected:
            yield problem(
                CHECK,
                scheduler.file,
                f"{key} is not what the extender answers"
                + (", so pods are bound without cards" if key == "bindVerb" else ""),
                _edit(scheduler, f"{key}: {expected}" if expected else f"no {key}"),
                expected=expected or f"no {key}",
                found=found or f"no {key}",
            )


def _manners(scheduler: Scheduler, entry: ExtenderEntry) -> Iterator[Finding]:
    if entry.ignorable:
        yield warning(
            CHECK,
            scheduler.file,
            "while the extender is away, and when a bind of it fails, kube-scheduler binds GPU pods itself, without"
            " cards",
            _edit(scheduler, "ignorable: false"),
            expected="ignorable: false",
            found="ignorable: true",
        )
    if not entry.node_cache_capable:
        yield warning(
            CHECK,
            scheduler.file,
            "kube-scheduler sends the extender whole nodes with every question, which is slow in large clusters",
            _edit(scheduler, "nodeCacheCapable: true"),
            expected="nodeCacheCapable: true",
            found="nodeCacheCapable: false",
        )


def _tls(scheduler: Scheduler, entry: ExtenderEntry) -> Iterator[Finding]:
    tls = entry.tls_config
    if not entry.url_prefix.startswith("https://") or not entry.enable_https:
        yield problem(
            CHECK,
            scheduler.file,
            "the extender speaks TLS only",
            _edit(scheduler, "urlPrefix: https://…, enableHTTPS: true"),
            expected="urlPrefix that begins with https://, and enableHTTPS: true",
            found=f"urlPrefix: {entry.url_prefix or 'none'}, enableHTTPS: {str(entry.enable_https).lower()}",
        )
    if tls is None or not (tls.cert_file and tls.key_file):
        yield problem(
            CHECK,
            scheduler.file,
            "kube-scheduler shows the extender no certificate and is turned away",
            CONFIGURE,
            expected="certFile and keyFile in tlsConfig",
            found="neither" if tls is None or not (tls.cert_file or tls.key_file) else "one of them",
        )
        return
    if tls.insecure or not (tls.ca_file or tls.ca_data):
        yield warning(
            CHECK,
            scheduler.file,
            "kube-scheduler does not check who answers it: anybody at that address may place GPU pods",
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

"""Check that kube-scheduler's configuration lists the extender, with the settings that it needs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from configurator.scheduler_configuration import CARD_RESOURCES, ExtenderEntry
from gas.doctor import fix
from gas.doctor.check import Check
from gas.doctor.findings import Finding, Level, Rule, Unseen, about, broken, not_seen, ok, problem, unknown, warning
from gas.doctor.snapshot import SeenScheduler, Snapshot
from gas.objects.stored import DetailedContainer
from gas.programs import EXTENDER, SCHEDULER
from gas.vocabularies.node_parts import allocatable_resources

CHECK = "scheduler-configuration"
CONFIGURE = "sudo gas-configurator   # on the control-plane node"


def check_schedulers(snapshot: Snapshot) -> Iterator[Finding]:
    """Check every scheduler. Those that share a ``schedulerName`` must all call the extender, or none."""
    if isinstance(snapshot.pods, Unseen):
        yield not_seen("kube-scheduler's pods", snapshot.pods)
    for pod, _ in snapshot.running(SCHEDULER):
        if not pod.is_ready:
            yield problem(
                "this kube-scheduler is not ready; it does not start if it cannot read its configuration",
                fix.pod(pod, "logs"),
                fix.pod(pod, "describe", "pod"),
                where=f"pod {pod.key}",
            )
    if not snapshot.schedulers:
        yield unknown(
            f"none was found: {snapshot.control_plane}/manifests/kube-scheduler.yaml is not on this machine, and no"
            " pod of the cluster runs kube-scheduler",
            "sudo gas doctor   # on the control-plane node",
            "gas doctor --scheduler-config=FILE   # if kube-scheduler is not a static pod",
            "less docs/clusters.md   # what to do on your kind of cluster",
            where="kube-scheduler",
        )
    served = frozenset(name for each in snapshot.schedulers if each.entries for name in each.names)
    for scheduler in snapshot.schedulers:
        if scheduler.entries:
            yield from about(scheduler.file, _entries(scheduler, snapshot))
        else:
            yield from about(scheduler.name, [_without_entry(scheduler, served)])


def _without_entry(scheduler: SeenScheduler, served: frozenset[str]) -> Finding:
    configuration = scheduler.configuration
    if isinstance(configuration, Unseen):
        if scheduler.is_like_here:
            return ok("has the same command as the one here; run gas doctor on its node to check its files")
        return unknown(configuration.why, configuration.fix)
    if served and scheduler.names.isdisjoint(served):
        return ok(f"does not call the extender; GPU pods need schedulerName {' or '.join(sorted(served))}")
    return problem(
        "kube-scheduler does not call the extender, so it places GPU pods by the sums of whole nodes, without cards",
        CONFIGURE,
        expected=f"an entry under extenders with managedResources {' and '.join(CARD_RESOURCES)}",
        found="it runs without --config" if configuration is None else f"none in {scheduler.file}",
    )


def _verb_rule(key: str, expected: str, verb: Callable[[ExtenderEntry], str], effect: str = "") -> Rule[ExtenderEntry]:
    return Rule(
        Level.PROBLEM,
        f"{key} is not what the extender serves{effect}",
        expected=expected,
        found=lambda entry: None if verb(entry).strip("/") == expected else verb(entry) or f"no {key}",
        change=f"{key}: {expected}",
    )


def _cert_files(entry: ExtenderEntry) -> tuple[str, str]:
    return (entry.tls_config.cert_file, entry.tls_config.key_file) if entry.tls_config is not None else ("", "")


def _unverified(entry: ExtenderEntry) -> str | None:
    tls = entry.tls_config
    if tls is None or not all(_cert_files(entry)):
        return None  # reported by itself
    if tls.insecure:
        return "insecure: true"
    return None if tls.ca_file or tls.ca_data else "no caFile"


_RULES: tuple[Rule[ExtenderEntry], ...] = (
    _verb_rule("filterVerb", "scheduler/filter", lambda entry: entry.filter_verb),
    _verb_rule("bindVerb", "scheduler/bind", lambda entry: entry.bind_verb, ", so pods are bound without cards"),
    Rule(
        Level.WARNING,
        "kube-scheduler sends the extender whole nodes with every request, which is slow in large clusters",
        expected="nodeCacheCapable: true",
        found=lambda entry: None if entry.node_cache_capable else "nodeCacheCapable: false",
    ),
    Rule(
        Level.PROBLEM,
        "the extender serves TLS only",
        expected="urlPrefix that begins with https://, and enableHTTPS: true",
        found=lambda entry: (
            None
            if entry.url_prefix.startswith("https://") and entry.enable_https
            else f"urlPrefix: {entry.url_prefix or 'none'}, enableHTTPS: {str(entry.enable_https).lower()}"
        ),
        change="urlPrefix: https://…, enableHTTPS: true",
    ),
    Rule(
        Level.WARNING,
        "kube-scheduler does not verify the extender's certificate: any server at that address can place GPU pods",
        expected="insecure: false and a caFile in tlsConfig",
        found=_unverified,
        change="tlsConfig: insecure: false, caFile: the authority of the extender's certificate",
    ),
)


def _entries(scheduler: SeenScheduler, snapshot: Snapshot) -> Iterator[Finding]:
    if len(scheduler.entries) > 1:
        yield problem(
            "several extenders are listed for GPUs; each would decide without knowing the others' decisions",
            edit(scheduler, "keep one of them"),
            expected="one entry under extenders with gpu.intel.com resources",
            found=", ".join(entry.url_prefix or "no urlPrefix" for entry in scheduler.entries),
        )
    for entry in scheduler.entries:
        yield from _resources(scheduler, entry, snapshot)
        yield from broken(_RULES, entry, partial(edit, scheduler))
        if not all(_cert_files(entry)):
            yield problem(
                "kube-scheduler has no client certificate for the extender, which refuses it",
                CONFIGURE,
                expected="certFile and keyFile in tlsConfig",
                found="one of them" if any(_cert_files(entry)) else "neither",
            )
        yield ok(f"lists the extender at {entry.url_prefix}", summary_of="object")


def _resources(scheduler: SeenScheduler, entry: ExtenderEntry, snapshot: Snapshot) -> Iterator[Finding]:
    nodes = () if isinstance(snapshot.nodes, Unseen) else snapshot.nodes
    for resource in snapshot.vocabularies.managed_resources:
        ignored = entry.managed.get(resource)
        wanted = str(resource in snapshot.vocabularies.ignored_resources).lower()
        if ignored is None:
            used = any(resource in allocatable_resources(node) for node in nodes)
            yield (problem if used else warning)(
                f"pods that ask for {resource} only are placed without the extender"
                + (", and nodes offer it" if used else ""),
                edit(scheduler, f"managedResources: name: {resource}, ignoredByScheduler: {wanted}"),
                expected=f"{resource} among managedResources",
                found=", ".join(entry.managed) or "no managedResources",
            )
        elif wanted == "true":
            if not ignored:
                yield problem(
                    f"kube-scheduler looks for {resource}, which no node offers, so pods that ask for it wait",
                    edit(scheduler, "ignoredByScheduler: true"),
                    expected=f"ignoredByScheduler: true for {resource}",
                    found="ignoredByScheduler: false",
                )
        elif ignored:
            yield warning(
                f"kube-scheduler itself does not count {resource}, so it sends the extender nodes that have none",
                edit(scheduler, "ignoredByScheduler: false"),
                expected=f"ignoredByScheduler: false for {resource}",
                found="ignoredByScheduler: true",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalVerb:
    """A verb that the extender serves only with a flag, so that the configuration must have it exactly then."""

    key: str  # in the configuration, with ``configured`` to read it
    configured: Callable[[ExtenderEntry], str]
    path: str
    is_served: Callable[[DetailedContainer], bool]
    flag: str  # as it is written
    not_served: str  # sentence for a verb that is configured and not served, and ``is_harmful`` if that harms GPU pods
    not_asked: str  # sentence for a verb that is served and not configured
    is_harmful: bool = False

    def serving(self, snapshot: Snapshot) -> list[bool]:
        return [self.is_served(container) for _, container in snapshot.running(EXTENDER)]

    @property
    def check(self) -> Check:
        return Check(name=CHECK, findings=self._findings)

    def _findings(self, snapshot: Snapshot) -> Iterator[Finding]:
        serving = self.serving(snapshot)
        for scheduler in snapshot.schedulers:
            for entry in scheduler.entries:
                found = self._judge(self.configured(entry), serving, partial(edit, scheduler))
                yield from about(scheduler.file, found)

    def _judge(self, asked: str, serving: list[bool], command_for: Callable[[str], str]) -> Iterator[Finding]:
        wanted = f"{self.key}: {self.path}"
        if not asked:
            if any(serving):
                expected = f"{wanted}, because the extender serves it"
                yield warning(self.not_asked, command_for(wanted), expected=expected, found=f"no {self.key}")
        elif asked.strip("/") != self.path:
            message = f"{self.key} is not what the extender serves"
            yield problem(message, command_for(wanted), expected=self.path, found=asked)
        elif serving and not all(serving):
            yield (problem if self.is_harmful else warning)(
                self.not_served,
                command_for(f"no {self.key}, or start gas-extender with {self.flag}"),
                expected=f"{self.flag.partition('=')[0]} of gas-extender",
                found="it is not set",
            )


def edit(scheduler: SeenScheduler, what: str) -> str:
    note = f"{what}; then restart kube-scheduler"
    if scheduler.config_map is not None:
        namespace, name = scheduler.config_map
        return fix.kubectl("edit", "configmap", name, namespace=namespace, note=note)
    return fix.command("sudoedit", scheduler.file, note=note)


CHECKS = (Check(name=CHECK, title="kube-scheduler's configuration", findings=check_schedulers),)

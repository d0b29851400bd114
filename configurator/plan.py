"""Plan the changes of a run. Files are read, but not written."""

import functools
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from configurator import api_server
from configurator.certificate_plan import CertificatePlan, serving_names
from configurator.configuration_document import ConfigurationDocument
from configurator.distributions import check_generated, is_generated, no_manifest
from configurator.distributions import settings as wanted_settings
from configurator.errors import ConfiguratorError, FileTrouble
from configurator.files import Change, Read, WantedFile, changes, fingerprint, read_input, read_state, unreadable
from configurator.flags import DEFAULT_TEMPLATE, Flags
from configurator.kubernetes_version import API_VERSION, NEWEST
from configurator.scheduler_container import CONFIG
from configurator.scheduler_manifest import CERTIFICATES_VOLUME, SchedulerManifest
from configurator.static_pod import StaticPod
from configurator.yaml_document import YamlDocument
from gas.vocabularies.combined import Vocabularies

BUILT_IN_TEMPLATE = Path(__file__).with_name("default-scheduler-config.yaml")
CONFIGURATION_DIRECTORY = Path("/etc/kubernetes")
CERTIFICATE_DIRECTORY = Path("/etc/certs")


@dataclass(frozen=True, slots=True)
class Plan:
    changes: Sequence[Change]  # in their order; the manifests, on which kubelet acts, are the last
    certificates: CertificatePlan  # with sentences about what is new
    warnings: Sequence[str]  # sentences about what the administrator should know or do

    def touches(self, path: Path) -> bool:
        return any(change.path == path for change in self.changes)


def make_plan(flags: Flags, now: datetime) -> Plan:
    """Plan the changes. Raises ConfiguratorError if a file prevents it."""
    read = functools.cache(read_state)  # so that the plan is about one state of each file
    state = read(flags.manifest)
    if state is None:
        raise no_manifest(flags.manifest, Path.exists)
    document = YamlDocument(str(flags.manifest), state.content)
    manifest = SchedulerManifest.read(document, flags.kubernetes_version)
    certificates = flags.certificate_directory or manifest.certificates(CERTIFICATES_VOLUME) or CERTIFICATE_DIRECTORY
    target, configuration, is_new = _configuration(flags, manifest, read)
    _refuse_misplaced(flags, certificates, target)
    generated = is_generated(flags.manifest)
    if generated:
        check_generated(flags.manifest, configuration.extender_host(), api_server=flags.api_server)

    signed = CertificatePlan(flags, certificates, read, now)
    owner = manifest.pod.owner
    caller = _presenting_api_server(flags, read)
    names = serving_names(configuration.extender_host(), flags.more_names)
    signed.make(names, owner, caller)
    wanted = [*signed.files, WantedFile(path=target, content=configuration.document.content)]
    if caller is not None:
        service_names = [name for name in names if name.endswith(".svc")]
        wanted += api_server.present_certificate(caller, flags.own_directory, service_names)
        wanted.append(WantedFile(path=flags.api_server_manifest, content=caller.document.content))
    settings = wanted_settings(manifest, configuration=target, certificates=certificates) if generated else ""
    read_at_start = [configuration.document.content, *signed.contents(certificates)]
    manifest.add_extender(configuration=target, certificates=certificates, fingerprint=fingerprint(read_at_start))
    if not generated:
        wanted.append(WantedFile(path=flags.manifest, content=document.content))
    made = changes(wanted, read)
    warnings = []
    if settings:
        warnings.append(
            f"RKE2 writes {flags.manifest} itself: add these lines to /etc/rancher/rke2/config.yaml, and run "
            f"systemctl restart rke2-server\n{settings}"
        )
    elif generated and made:
        warnings.append("kube-scheduler reads its files when it starts: run systemctl restart rke2-server")
    if flags.template is not None and not is_new and made:
        warnings.append(f"a configuration exists already, so only the extenders of {flags.template} are used")
    if flags.template is None and DEFAULT_TEMPLATE.exists() and any(change.path == target for change in made):
        warnings.append(f"without -f the template is {DEFAULT_TEMPLATE.absolute()} in the working directory")
    if not manifest.version.is_known and made:
        warnings.append(
            f"Kubernetes {manifest.version} is later than 1.{NEWEST}, the newest known release; it is assumed to read "
            f"{API_VERSION} as well"
        )
    if owner is not None:
        seen = [file for file in wanted if file.path == target or file.path.parent == certificates]
        warnings += unreadable(seen, read, directory=certificates, owner=owner)
    if signed.cluster_authority is None:
        warnings += [
            f"kube-scheduler uses its new client certificate for {address} as well, which must trust "
            f"{flags.own_directory}/ca.crt now; with --cluster-ca it need not"
            for address in configuration.same_certificate_elsewhere()
        ]
    return Plan(made, signed, warnings)


def _presenting_api_server(flags: Flags, read: Read) -> StaticPod | None:
    """Return kube-apiserver's manifest if it must present a certificate, by a flag or since an earlier run."""
    path = flags.api_server_manifest
    try:
        state = read(path)
        if state is None:
            raise FileTrouble(path, "does not exist; --api-server needs kube-apiserver's static pod manifest there")
        pod = StaticPod.read(YamlDocument(str(path), state.content), api_server.PROGRAM, FileTrouble)
    except ConfiguratorError:
        if flags.api_server:
            raise
        return None
    return pod if flags.api_server or api_server.uses(pod, flags.own_directory) else None


def _configuration(flags: Flags, manifest: SchedulerManifest, read: Read) -> tuple[Path, ConfigurationDocument, bool]:
    """Return the file that kube-scheduler will read, its content, and whether it is new."""
    template = _template(flags)
    target = (flags.configuration_directory or CONFIGURATION_DIRECTORY) / (flags.template or DEFAULT_TEMPLATE).name
    base = target
    if (given := manifest.configuration) is not None:
        in_use = manifest.pod.on_host(given)
        if in_use is None:
            raise ConfiguratorError(
                f"{flags.manifest} has --{CONFIG}={given}, which is not a file of this machine that the pod mounts, so "
                "the extender cannot be added to it; mount it from the host, and run this again"
            )
        base = in_use
        target = in_use if flags.configuration_directory is None else target
        if read(base) is None:
            raise FileTrouble(base, f"does not exist, although kube-scheduler has --{CONFIG}={given}")
    # With a configuration of the administrator's own, kube-scheduler ignores these flags already. With one that we
    # wrote, or that is used only from now on, ignoring them would be a change that was not asked for.
    own = manifest.has_own_configuration and target == base
    carried = {} if own else manifest.pod.flags.configuration()
    vocabularies = Vocabularies(flags.vocabularies)
    managed, ignored = vocabularies.managed_resources, vocabularies.ignored_resources
    existing = read(base)
    if existing is None:
        template.add_extender(None, url=flags.url, carried=carried, managed=managed, ignored=ignored)
        return target, template, True
    found = ConfigurationDocument(YamlDocument(str(base), existing.content))
    found.add_extender(template, url=flags.url, carried=carried, managed=managed, ignored=ignored)
    return target, found, False


def _template(flags: Flags) -> ConfigurationDocument:
    path = flags.template
    if path is None:
        path = DEFAULT_TEMPLATE.absolute() if DEFAULT_TEMPLATE.exists() else BUILT_IN_TEMPLATE
        if path != BUILT_IN_TEMPLATE:
            _refuse_planted(path)
    return ConfigurationDocument(YamlDocument(str(path), read_input(path)))


def _refuse_planted(path: Path) -> None:
    """Refuse a default template that another user could have put there.

    The user who runs this with sudo is trusted; sudo itself sets the variable.
    """
    trusted = {"0", str(os.geteuid()), os.environ.get("SUDO_UID")}
    for place in (path, *path.parents[: len(DEFAULT_TEMPLATE.parts) - 1]):
        try:
            found = place.lstat()
        except OSError as error:
            raise FileTrouble(place, f"cannot be read: {error.strerror}") from None
        of_others = str(found.st_uid) not in trusted
        if of_others or (found.st_mode & stat.S_IWOTH and not stat.S_ISLNK(found.st_mode)):
            why = f"belongs to user {found.st_uid}" if of_others else "can be written by every user"
            raise FileTrouble(
                place,
                f"{why}, so it is not used as the default template: set it with -f, or run this in another directory",
            )


def _refuse_misplaced(flags: Flags, certificates: Path, target: Path) -> None:
    manifests = flags.manifest.parent
    places = {"-d": target.parent, "-cert-dir": certificates, "--pki-dir": flags.own_directory, "-b": flags.backups}
    for flag, place in places.items():
        if place is not None and place.resolve().is_relative_to(manifests.resolve()):
            raise ConfiguratorError(
                f"{flag} {place} is in the manifests' directory, where kubelet runs every file; name another"
            )
    if flags.own_directory.resolve().is_relative_to(certificates.resolve()):
        raise ConfiguratorError(
            f"--pki-dir {flags.own_directory} holds the authority's private key, and -cert-dir {certificates} is "
            "mounted into kube-scheduler's container; choose another directory for one of them"
        )

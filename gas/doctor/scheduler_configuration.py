"""The part of kube-scheduler's configuration that says which extenders it calls, and how."""

from __future__ import annotations

import msgspec

from gas.doctor.yaml_text import NotYaml, parse_yaml
from gas.errors import GasError
from gas.intel import names


class NotAConfiguration(GasError):
    """The text is no configuration of a kube-scheduler."""


class _Part(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    pass


class ManagedResource(_Part, frozen=True):
    name: str = ""
    ignored_by_scheduler: bool = False


class TlsConfig(_Part, frozen=True):
    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    ca_data: str = ""


class ExtenderEntry(_Part, frozen=True):
    """One entry under ``extenders``, with kube-scheduler's own defaults."""

    url_prefix: str = msgspec.field(default="", name="urlPrefix")
    filter_verb: str = ""
    bind_verb: str = ""
    prioritize_verb: str = ""
    preempt_verb: str = ""
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    node_cache_capable: bool = False
    ignorable: bool = False
    managed_resources: list[ManagedResource] | None = None
    tls_config: TlsConfig | None = None

    @property
    def managed(self) -> dict[str, bool]:
        """Resource -> whether kube-scheduler itself ignores it."""
        return {each.name: each.ignored_by_scheduler for each in self.managed_resources or ()}

    @property
    def is_about_gpus(self) -> bool:
        return any(name.startswith(names.PREFIX) for name in self.managed) or "//gas-service." in self.url_prefix


class _Profile(_Part, frozen=True):
    scheduler_name: str = "default-scheduler"


class SchedulerConfiguration(_Part, frozen=True):
    api_version: str = ""
    kind: str = ""
    extenders: list[ExtenderEntry] | None = None
    profiles: list[_Profile] | None = None

    @property
    def gpu_extenders(self) -> list[ExtenderEntry]:
        return [entry for entry in self.extenders or () if entry.is_about_gpus]

    @property
    def scheduler_names(self) -> frozenset[str]:
        """For pods with one of these as ``schedulerName`` it counts."""
        return frozenset(profile.scheduler_name for profile in self.profiles or (_Profile(),))


def parse_scheduler_configuration(text: bytes) -> SchedulerConfiguration:
    """Raises NotAConfiguration, with the reason alone."""
    try:
        documents = [each for each in parse_yaml(text) if each is not None]
    except NotYaml as error:
        raise NotAConfiguration(str(error)) from error
    if len(documents) != 1:
        raise NotAConfiguration(f"expected one document, found {len(documents)}")
    try:
        configuration = msgspec.convert(documents[0], SchedulerConfiguration)
    except (msgspec.ValidationError, RecursionError) as error:
        raise NotAConfiguration(str(error)) from error
    if configuration.kind != "KubeSchedulerConfiguration":
        raise NotAConfiguration(
            f"expected kind KubeSchedulerConfiguration, found {configuration.kind[:80]!r}; kube-scheduler from"
            " 1.23 on reads no other"
        )
    return configuration

"""Read kube-scheduler's configuration: which extenders it calls, and how. Configurator and doctor use it."""

import msgspec

from gas.values.errors import GasError
from gas.values.yaml_text import InvalidYaml, parse_yaml
from gas.vocabularies.known import DEFAULT

KIND = "KubeSchedulerConfiguration"
CARD_RESOURCES = DEFAULT.managed_resources
"""Resources of GPU pods. The extender that manages one of them decides about these pods."""

_DOMAINS = tuple({f"{resource.partition('/')[0]}/" for resource in CARD_RESOURCES})


class NotAConfiguration(GasError):
    """A text is not a configuration of kube-scheduler. The sentence has the reason alone."""


class _Part(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A part of a configuration, with kube-scheduler's own defaults."""


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
        """By managed resource, whether kube-scheduler itself ignores it."""
        return {each.name: each.ignored_by_scheduler for each in self.managed_resources or ()}

    @property
    def is_about_gpus(self) -> bool:
        """True if the entry manages a resource of GPUs, or names the Service that every installation has."""
        return any(name.startswith(_DOMAINS) for name in self.managed) or "//gas-service." in self.url_prefix


class _Named(_Part, frozen=True):
    name: str = ""


class _Plugins(_Part, frozen=True):
    enabled: list[_Named] | None = None


class _Profile(_Part, frozen=True):
    scheduler_name: str = "default-scheduler"
    plugins: dict[str, _Plugins | None] | None = None  # by extension point


class SchedulerConfiguration(_Part, frozen=True):
    """The parts of a configuration that concern extenders."""

    api_version: str = ""
    kind: str = ""
    extenders: list[ExtenderEntry] | None = None
    profiles: list[_Profile] | None = None

    @property
    def scheduler_names(self) -> frozenset[str]:
        """The values of a pod's ``schedulerName`` for which this scheduler places it."""
        return frozenset(profile.scheduler_name for profile in self.profiles or (_Profile(),))

    def enables(self, plugin: str) -> bool:
        """Return whether a profile enables this plugin of the scheduler."""
        points = [each for profile in self.profiles or () for each in (profile.plugins or {}).values() if each]
        return any(each.name == plugin for point in points for each in point.enabled or ())


def parse_scheduler_configuration(text: bytes) -> SchedulerConfiguration:
    """Parse a configuration. Raises NotAConfiguration."""
    try:
        documents = [each for each in parse_yaml(text) if each is not None]
    except InvalidYaml as error:
        raise NotAConfiguration(str(error)) from error
    if len(documents) != 1:
        raise NotAConfiguration(f"expected one document, found {len(documents)}")
    try:
        configuration = msgspec.convert(documents[0], SchedulerConfiguration)
    except (msgspec.ValidationError, RecursionError) as error:
        raise NotAConfiguration(str(error)) from error
    if configuration.kind != KIND:
        raise NotAConfiguration(
            f"expected kind {KIND}, found {configuration.kind[:80]!r}; kube-scheduler from 1.23 on reads no other"
        )
    return configuration

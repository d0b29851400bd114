"""kube-scheduler's configuration with the extender in it: made new, or merged into the one in use. Text to text."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from configurator.errors import BadConfiguration
from configurator.kubernetes_version import GROUP, KubernetesVersion
from configurator.scheduler_manifest import CERTIFICATES_IN_POD
from configurator.yaml_document import YamlDocument

KIND = "KubeSchedulerConfiguration"
CARD_RESOURCES = ("gpu.intel.com/i915", "gpu.intel.com/xe")
"""Whoever manages one of them decides about GPU pods."""

_OPEN_VERSION = f"{GROUP}/XVERSIONX"
"""What the original's files say, whose configurator puts the version in its place."""

_TLS = {
    "insecure": False,
    "certFile": f"{CERTIFICATES_IN_POD}/client.crt",
    "keyFile": f"{CERTIFICATES_IN_POD}/client.key",
    "caFile": f"{CERTIFICATES_IN_POD}/ca.crt",
}
"""Without ``caFile`` kube-scheduler does not look at all at who answers it."""

_LEFT_AS_IT_IS = ("ignorable", "weight", "managedResources", "tlsConfig", "urlPrefix")
"""Of an entry that is there already: kept, absent too, or merged member by member."""


class SchedulerConfiguration:
    """A configuration that was found to be kube-scheduler's.

    Raises BadConfiguration when it is not.
    """

    def __init__(self, document: YamlDocument) -> None:
        self.document = document
        kind, version = document.get("kind"), str(document.get("apiVersion"))
        if kind == "Policy":
            raise BadConfiguration(document.name, "is a Policy, which kube-scheduler no longer reads since 1.23")
        if kind != KIND or not (KubernetesVersion.is_api_version(version) or version == _OPEN_VERSION):
            raise BadConfiguration(
                document.name,
                f"holds {kind!r} of {version!r}; expected a {KIND} of {GROUP}/v1, or of v1beta1 to v1beta3",
            )
        extenders = document.get("extenders")
        if extenders is not None and not isinstance(extenders, list):
            raise BadConfiguration(document.name, "has extenders that are not a list")
        for entry in extenders or ():
            if not isinstance(entry, Mapping) or not isinstance(entry.get("urlPrefix"), str):
                raise BadConfiguration(document.name, "has an entry under extenders without urlPrefix")

    @property
    def name(self) -> str:
        return self.document.name

    @property
    def extenders(self) -> list[dict[str, Any]]:
        return self.document.get("extenders") or []

    def ours(self) -> int | None:
        """The index of the extender that decides about cards. Raises BadConfiguration when several do."""
        found = [index for index, entry in enumerate(self.extenders) if not _managed(entry).isdisjoint(CARD_RESOURCES)]
        if len(found) > 1:
            raise BadConfiguration(self.name, f"has {len(found)} extenders that manage {' or '.join(CARD_RESOURCES)}")
        return found[0] if found else None


def new_configuration(
    template: SchedulerConfiguration,
    *,
    version: KubernetesVersion,
    url: str | None,
    carried: Mapping[tuple[str, ...], object],
) -> SchedulerConfiguration:
    """The template for this release of kube-scheduler.

    url      where the extender is, instead of what the template says
    carried  path -> value, from flags that kube-scheduler ignores once it is given a file

    Raises BadConfiguration when the template tells of no extender of ours.
    """
    document = template.document.with_value(("apiVersion",), version.newest_api_version)
    for path, value in carried.items():
        document = document.with_value(path, value)
    place = _place_of_ours(template)
    return _checked(_completed(document, place, template.extenders[place], url))


def merged_configuration(
    existing: SchedulerConfiguration,
    template: SchedulerConfiguration,
    *,
    version: KubernetesVersion,
    url: str | None,
    carried: Mapping[tuple[str, ...], object],
) -> SchedulerConfiguration:
    """The configuration in use, with the template's extenders added. What is there already keeps its settings.

    carried  path -> value, from flags that kube-scheduler ignores; added where the configuration says nothing

    Its ``apiVersion`` stays while kube-scheduler reads it. Raises BadConfiguration where kube-scheduler would refuse
    the outcome: two extenders that bind, or two that manage one resource.
    """
    document = existing.document
    if not version.reads(document.get("apiVersion")):
        document = document.with_value(("apiVersion",), version.newest_api_version)
    for path, value in carried.items():
        if document.get(*path) in (None, ""):
            document = document.with_value(path, value)
    wanted = template.extenders[_place_of_ours(template)]
    place = existing.ours()
    if place is None:
        place = len(existing.extenders)
        document = document.with_item(("extenders",), wanted)
    elif existing.extenders[place].get("bindVerb", wanted["bindVerb"]) != wanted["bindVerb"]:
        raise BadConfiguration(
            existing.name,
            f"has {existing.extenders[place]['urlPrefix']}, which manages GPUs in another way; only one extender can",
        )
    document = _completed(document, place, wanted, url)
    present = {entry["urlPrefix"] for entry in existing.extenders}
    for entry in template.extenders:
        if entry is not wanted and entry != wanted and entry["urlPrefix"] not in present:
            document = document.with_item(("extenders",), entry)
    return _checked(document)


def extender_host(configuration: SchedulerConfiguration) -> str:
    """The host by which kube-scheduler calls our extender. Raises BadConfiguration when that cannot be told."""
    place = _place_of_ours(configuration)
    url = str(configuration.extenders[place]["urlPrefix"])
    host = None
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        host = parts.hostname if parts.scheme == "https" and parts.port != 0 else None
    if not host:
        raise BadConfiguration(configuration.name, f"has urlPrefix {url!r}; expected https://HOST:PORT")
    return host


def same_certificate_elsewhere(configuration: SchedulerConfiguration) -> list[str]:
    """Of other extenders to which kube-scheduler shows the certificate from the same directory, their addresses."""
    ours = configuration.ours()
    return [
        entry["urlPrefix"]
        for index, entry in enumerate(configuration.extenders)
        if index != ours and _certificate_file(entry).startswith(CERTIFICATES_IN_POD)
    ]


def _certificate_file(entry: Mapping[str, Any]) -> str:
    tls = entry.get("tlsConfig")
    return str(tls.get("certFile")) if isinstance(tls, Mapping) else ""


def _place_of_ours(configuration: SchedulerConfiguration) -> int:
    place = configuration.ours()
    if place is None:
        raise BadConfiguration(
            configuration.name, f"has no extender that manages {' or '.join(CARD_RESOURCES)}; see -f in --help"
        )
    return place


def _completed(document: YamlDocument, place: int, wanted: Mapping[str, Any], url: str | None) -> YamlDocument:
    """The entry with all that it needs; what decides how it behaves is left as it is found."""
    path = ("extenders", place)
    for key, value in wanted.items():
        if key not in _LEFT_AS_IT_IS and document.get(*path, key) is None:
            document = document.with_value((*path, key), value)
    if url is not None:
        document = document.with_value((*path, "urlPrefix"), url)
    document = document.with_value((*path, "enableHTTPS"), True)
    for name in CARD_RESOURCES:
        if name not in _managed(document.get(*path)):
            entry = {"name": name, "ignoredByScheduler": False}
            document = document.with_item((*path, "managedResources"), entry)
    for key, value in _TLS.items():
        document = document.with_value((*path, "tlsConfig", key), value)
    return document


def _checked(document: YamlDocument) -> SchedulerConfiguration:
    """What kube-scheduler itself would refuse at its start is refused here, before anything is written."""
    configuration = SchedulerConfiguration(document)
    binders = [entry["urlPrefix"] for entry in configuration.extenders if entry.get("bindVerb")]
    if len(binders) > 1:
        raise BadConfiguration(
            document.name, f"would have several extenders that bind, {', '.join(binders)}; kube-scheduler allows one"
        )
    managed: set[str] = set()
    for entry in configuration.extenders:
        if not managed.isdisjoint(_managed(entry)):
            both = ", ".join(sorted(managed & _managed(entry)))
            raise BadConfiguration(document.name, f"would have several extenders that manage {both}")
        managed |= _managed(entry)
    return configuration


def _managed(entry: Mapping[str, Any]) -> set[str]:
    resources = entry.get("managedResources")
    if not isinstance(resources, list):
        return set()
    return {str(each["name"]) for each in resources if isinstance(each, Mapping) and "name" in each}

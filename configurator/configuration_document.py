"""Put the extender into kube-scheduler's configuration: a new one, or the one in use. Text to text."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from configurator.errors import BadConfiguration
from configurator.kubernetes_version import GROUP, KubernetesVersion
from configurator.scheduler_configuration import CARD_RESOURCES, KIND
from configurator.scheduler_manifest import CERTIFICATES_IN_POD
from configurator.yaml_document import YamlDocument

_OPEN_VERSION = f"{GROUP}/XVERSIONX"
"""The placeholder in the original's files, which its configurator replaces by the version."""

_TLS = {
    "insecure": False,
    "certFile": f"{CERTIFICATES_IN_POD}/client.crt",
    "keyFile": f"{CERTIFICATES_IN_POD}/client.key",
    "caFile": f"{CERTIFICATES_IN_POD}/ca.crt",
}
"""Without ``caFile`` kube-scheduler does not verify the extender's certificate."""

_LEFT_AS_IT_IS = ("ignorable", "weight", "managedResources", "tlsConfig", "urlPrefix", "prioritizeVerb")
"""Keys of an existing entry that are kept, even if absent, or merged member by member."""


class ConfigurationDocument:
    """The text of a kube-scheduler configuration, for editing.

    Raises BadConfiguration if the document is something else.
    """

    def __init__(self, document: YamlDocument) -> None:
        self.document = document
        kind, version = document.get("kind"), str(document.get("apiVersion"))
        if kind == "Policy":
            raise BadConfiguration(document.name, "is a Policy, which kube-scheduler no longer reads from 1.23 on")
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

    def index_of_ours(self) -> int | None:
        """Return the index of the extender that manages cards, or None. Raises BadConfiguration for several."""
        found = [index for index, entry in enumerate(self.extenders) if not _managed(entry).isdisjoint(CARD_RESOURCES)]
        if len(found) > 1:
            raise BadConfiguration(self.name, f"has {len(found)} extenders that manage {' or '.join(CARD_RESOURCES)}")
        return found[0] if found else None


def new_configuration(
    template: ConfigurationDocument,
    *,
    version: KubernetesVersion,
    url: str | None,
    carried: Mapping[tuple[str, ...], object],
    managed: Sequence[str] = CARD_RESOURCES,
) -> ConfigurationDocument:
    """Return the template, adapted to a release of kube-scheduler.

    url      URL of the extender, instead of the template's
    managed  the resources of pods that the extender is asked about; the template's are kept
    carried  path -> value, from flags that kube-scheduler ignores once it has a file

    Raises BadConfiguration if no extender of the template manages cards.
    """
    document = template.document.with_value(("apiVersion",), version.newest_api_version)
    for path, value in carried.items():
        document = document.with_value(path, value)
    place = _index_of_ours(template)
    return _checked(_completed(document, place, template.extenders[place], url, managed))


def merged_configuration(
    existing: ConfigurationDocument,
    template: ConfigurationDocument,
    *,
    version: KubernetesVersion,
    url: str | None,
    carried: Mapping[tuple[str, ...], object],
    managed: Sequence[str] = CARD_RESOURCES,
) -> ConfigurationDocument:
    """Return the configuration in use with the template's extenders added. Existing entries keep their settings.

    managed  the resources of pods that the extender is asked about; others of its entry are kept
    carried  path -> value, from flags that kube-scheduler ignores; added where the configuration has no value

    ``apiVersion`` stays if the release reads it. Raises BadConfiguration if kube-scheduler would refuse the result:
    two extenders that bind, or two that manage one resource.
    """
    document = existing.document
    if not version.reads(document.get("apiVersion")):
        document = document.with_value(("apiVersion",), version.newest_api_version)
    for path, value in carried.items():
        if document.get(*path) in (None, ""):
            document = document.with_value(path, value)
    wanted = template.extenders[_index_of_ours(template)]
    place = existing.index_of_ours()
    if place is None:
        place = len(existing.extenders)
        document = document.with_item(("extenders",), wanted)
    elif existing.extenders[place].get("bindVerb", wanted["bindVerb"]) != wanted["bindVerb"]:
        raise BadConfiguration(
            existing.name,
            f"has {existing.extenders[place]['urlPrefix']}, which manages the same GPUs; only one extender can",
        )
    document = _completed(document, place, wanted, url, managed)
    present = {entry["urlPrefix"] for entry in existing.extenders}
    for entry in template.extenders:
        if entry is not wanted and entry != wanted and entry["urlPrefix"] not in present:
            document = document.with_item(("extenders",), entry)
    return _checked(document)


def extender_host(configuration: ConfigurationDocument) -> str:
    """Return the host in the URL of the extender. Raises BadConfiguration if there is none."""
    place = _index_of_ours(configuration)
    url = str(configuration.extenders[place]["urlPrefix"])
    host = None
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        host = parts.hostname if parts.scheme == "https" and parts.port != 0 else None
    if not host:
        raise BadConfiguration(configuration.name, f"has urlPrefix {url!r}; expected https://HOST:PORT")
    return host


def same_certificate_elsewhere(configuration: ConfigurationDocument) -> list[str]:
    """Return the URLs of other extenders that get the client certificate from the same directory."""
    ours = configuration.index_of_ours()
    return [
        entry["urlPrefix"]
        for index, entry in enumerate(configuration.extenders)
        if index != ours and _certificate_file(entry).startswith(CERTIFICATES_IN_POD)
    ]


def _certificate_file(entry: Mapping[str, Any]) -> str:
    tls = entry.get("tlsConfig")
    return str(tls.get("certFile")) if isinstance(tls, Mapping) else ""


def _index_of_ours(configuration: ConfigurationDocument) -> int:
    place = configuration.index_of_ours()
    if place is None:
        raise BadConfiguration(
            configuration.name, f"has no extender that manages {' or '.join(CARD_RESOURCES)}; see -f in --help"
        )
    return place


def _completed(
    document: YamlDocument, place: int, wanted: Mapping[str, Any], url: str | None, managed: Sequence[str]
) -> YamlDocument:
    """Add to the entry what the extender needs. Settings of its behaviour stay as they are."""
    path = ("extenders", place)
    for key, value in wanted.items():
        if key not in _LEFT_AS_IT_IS and document.get(*path, key) is None:
            document = document.with_value((*path, key), value)
    if url is not None:
        document = document.with_value((*path, "urlPrefix"), url)
    document = document.with_value((*path, "enableHTTPS"), True)
    for name in dict.fromkeys((*CARD_RESOURCES, *managed)):
        if name not in _managed(document.get(*path)):
            entry = {"name": name, "ignoredByScheduler": False}
            document = document.with_item((*path, "managedResources"), entry)
    for key, value in _TLS.items():
        document = document.with_value((*path, "tlsConfig", key), value)
    return document


def _checked(document: YamlDocument) -> ConfigurationDocument:
    """Raise BadConfiguration for what kube-scheduler would refuse at its start, before anything is written."""
    configuration = ConfigurationDocument(document)
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

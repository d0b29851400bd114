"""Put the extender into kube-scheduler's configuration: a new one, or the one in use."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from configurator.errors import FileTrouble
from configurator.kubernetes_version import API_VERSION, OLDEST
from configurator.scheduler_configuration import CARD_RESOURCES, KIND
from configurator.scheduler_manifest import CERTIFICATES_IN_POD
from configurator.yaml_document import YamlDocument

_EARLIER = tuple(f"kubescheduler.config.k8s.io/{version}" for version in ("v1beta2", "v1beta3"))
_CHANGED = ("healthzBindAddress", "metricsBindAddress", "profiles")
"""Keys of `_EARLIER` that v1 does not have, or reads differently."""

_OPEN_VERSION = "kubescheduler.config.k8s.io/XVERSIONX"  # the placeholder for the version in the original's files

_TLS = {
    "insecure": False,
    "certFile": f"{CERTIFICATES_IN_POD}/client.crt",
    "keyFile": f"{CERTIFICATES_IN_POD}/client.key",
    "caFile": f"{CERTIFICATES_IN_POD}/ca.crt",
}
"""Without ``caFile`` kube-scheduler does not verify the extender's certificate."""

_LEFT_AS_IT_IS = ("ignorable", "weight", "managedResources", "tlsConfig", "urlPrefix", "prioritizeVerb")
"""Keys of an existing entry that stay, even if absent, or are merged member by member."""

Carried = Mapping[tuple[str, ...], object]
"""Values by path, from flags that kube-scheduler ignores once it has a configuration."""


class ConfigurationDocument:
    """A kube-scheduler configuration, for editing. Raises FileTrouble if the document is not one."""

    def __init__(self, document: YamlDocument) -> None:
        self.document = document
        kind, version = document.get("kind"), document.get("apiVersion")
        if kind != KIND or version not in (API_VERSION, _OPEN_VERSION, *_EARLIER):
            raise FileTrouble(
                document.name,
                f"is a {kind!r} of {version!r}; expected a {KIND} of {API_VERSION!r}, which kube-scheduler reads from "
                f"1.{OLDEST} on; convert the file, and run again",
            )
        changed = [key for key in _CHANGED if document.get(key) is not None]
        if version in _EARLIER and changed:
            raise FileTrouble(
                document.name,
                f"is of {version!r} and has {' and '.join(changed)}, which may mean something else in {API_VERSION!r};"
                " convert the file, and run again",
            )
        extenders = document.get("extenders")
        if extenders is not None and not isinstance(extenders, list):
            raise FileTrouble(document.name, "has extenders that are not a list")
        for entry in extenders or ():
            if not isinstance(entry, Mapping) or not isinstance(entry.get("urlPrefix"), str):
                raise FileTrouble(document.name, "has an entry under extenders without urlPrefix")

    @property
    def name(self) -> str:
        return self.document.name

    @property
    def extenders(self) -> list[dict[str, Any]]:
        return self.document.get("extenders") or []

    def find_own(self) -> int | None:
        """Return the index of the extender that manages cards, or None. Raises FileTrouble for several."""
        found = [index for index, entry in enumerate(self.extenders) if not _managed(entry).isdisjoint(CARD_RESOURCES)]
        if len(found) > 1:
            raise FileTrouble(self.name, f"has {len(found)} extenders that manage {' or '.join(CARD_RESOURCES)}")
        return found[0] if found else None

    def own(self) -> int:
        """Return the same as `find_own`. Raises FileTrouble if there is none."""
        place = self.find_own()
        if place is None:
            raise FileTrouble(
                self.name, f"has no extender that manages {' or '.join(CARD_RESOURCES)}; see -f in --help"
            )
        return place

    def add_extender(
        self,
        template: ConfigurationDocument | None,
        *,
        url: str | None,
        carried: Carried,
        managed: Sequence[str] = CARD_RESOURCES,
        ignored: Collection[str] = (),
    ) -> None:
        """Add the template's extenders. Existing entries keep their settings.

        template  None if this is the template itself, which becomes a new configuration
        url       of the extender, instead of the template's or the existing entry's
        carried   values that replace those of a template, and are added where an existing configuration has none
        managed   the resources of pods that the extender is called for; others of its entry stay
        ignored   those of them that no node offers

        Raises FileTrouble if no extender of the template manages cards, or if kube-scheduler would refuse the
        result: two extenders that bind, or two that manage one resource.
        """
        source = template or self
        own = source.own()
        wanted = source.extenders[own]
        self.document.set(("apiVersion",), API_VERSION)
        for path, value in carried.items():
            if template is None or self.document.get(*path) in (None, ""):
                self.document.set(path, value)
        present = {entry["urlPrefix"] for entry in self.extenders}
        others = [
            entry for entry in source.extenders[:own] + source.extenders[own + 1 :] if entry["urlPrefix"] not in present
        ]
        place = self.find_own()
        if place is None:
            place = len(self.extenders)
            self.document.append(("extenders",), wanted)
        elif self.extenders[place].get("bindVerb", wanted.get("bindVerb")) != wanted.get("bindVerb"):
            raise FileTrouble(
                self.name,
                f"has {self.extenders[place]['urlPrefix']}, which manages the same GPUs; only one extender can",
            )
        all_managed = {name: name in ignored for name in (*CARD_RESOURCES, *managed)}
        self._complete_entry(place, wanted, url, all_managed)
        for entry in others:
            self.document.append(("extenders",), entry)
        self._check()

    def _complete_entry(
        self, place: int, wanted: Mapping[str, Any], url: str | None, managed: Mapping[str, bool]
    ) -> None:
        """Add to the entry what the extender needs, without changing settings of its behaviour."""
        document, path = self.document, ("extenders", place)
        for key, value in wanted.items():
            if key not in _LEFT_AS_IT_IS and document.get(*path, key) is None:
                document.set((*path, key), value)
        if url is not None:
            document.set((*path, "urlPrefix"), url)
        document.set((*path, "enableHTTPS"), True)
        for name, is_ignored in managed.items():
            if name not in _managed(document.get(*path)):
                document.append((*path, "managedResources"), {"name": name, "ignoredByScheduler": is_ignored})
        for key, value in _TLS.items():
            document.set((*path, "tlsConfig", key), value)

    def _check(self) -> None:
        """Raise FileTrouble for what kube-scheduler would refuse at its start, before anything is written."""
        binders = [entry["urlPrefix"] for entry in self.extenders if entry.get("bindVerb")]
        if len(binders) > 1:
            raise FileTrouble(
                self.name, f"would have several extenders that bind, {', '.join(binders)}; kube-scheduler allows one"
            )
        managed: set[str] = set()
        for entry in self.extenders:
            if not managed.isdisjoint(_managed(entry)):
                both = ", ".join(sorted(managed & _managed(entry)))
                raise FileTrouble(self.name, f"would have several extenders that manage {both}")
            managed |= _managed(entry)

    def extender_host(self) -> str:
        """Return the host in the extender's URL. Raises FileTrouble if there is none."""
        url = str(self.extenders[self.own()]["urlPrefix"])
        host = None
        with contextlib.suppress(ValueError):
            parts = urlsplit(url)
            host = parts.hostname if parts.scheme == "https" and parts.port != 0 else None
        if not host:
            raise FileTrouble(self.name, f"has urlPrefix {url!r}; expected https://HOST:PORT")
        return host

    def same_certificate_elsewhere(self) -> list[str]:
        """Return the URLs of other extenders that get the client certificate from the same directory."""
        own = self.find_own()
        return [
            entry["urlPrefix"]
            for index, entry in enumerate(self.extenders)
            if index != own and _certificate_file(entry).startswith(CERTIFICATES_IN_POD)
        ]


def _certificate_file(entry: Mapping[str, Any]) -> str:
    tls = entry.get("tlsConfig")
    return str(tls.get("certFile")) if isinstance(tls, Mapping) else ""


def _managed(entry: Mapping[str, Any]) -> set[str]:
    resources = entry.get("managedResources")
    if not isinstance(resources, list):
        return set()
    return {str(each["name"]) for each in resources if isinstance(each, Mapping) and "name" in each}

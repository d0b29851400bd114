"""The release of a kube-scheduler, and the versions of its configuration that the release reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from configurator.errors import ConfiguratorError

OLDEST = 22
"""The oldest minor release of Kubernetes 1 that is supported."""

NEWEST = 37
"""The newest minor release that is known."""

FARTHEST = 42
"""Later releases up to this one are assumed to read what the newest known one reads: so far each version of the
configuration was supported for that long. Beyond it, the tag of an image alone is not enough."""

GROUP = "kubescheduler.config.k8s.io"

_READ_BY = {"v1beta1": (19, 22), "v1beta2": (22, 27), "v1beta3": (23, 28), "v1": (25, None)}
"""Version of the configuration -> first and last minor release that reads it; None if there is no last one so far."""

_TAG = re.compile(r"v?1\.(?P<minor>[0-9]{1,3})\.[0-9]{1,3}([-+_.][A-Za-z0-9_.+-]*)?", re.ASCII)
_GIVEN = re.compile(r"v?1\.(?P<minor>[0-9]{1,3})(\.[0-9]{1,3})?([-+_][A-Za-z0-9_.+-]*)?", re.ASCII)


class UnknownVersion(ConfiguratorError):
    """The release of a kube-scheduler is unknown or not supported."""


@dataclass(frozen=True, slots=True, order=True)
class KubernetesVersion:
    """A minor release: ``KubernetesVersion(34)`` is 1.34."""

    minor: int

    @classmethod
    def of_image(cls, image: str, *, name: str) -> Self:
        """Read the tag of an image such as ``registry.k8s.io/kube-scheduler:v1.34.4``. Raises UnknownVersion."""
        tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
        if (match := _TAG.fullmatch(tag)) is None:
            raise UnknownVersion(
                f"{name}: the image {image[:200]!r} does not name the release of Kubernetes; name it with "
                "--kubernetes-version, such as --kubernetes-version=1.34"
            )
        found = cls._supported(int(match["minor"]), name)
        if found.minor > FARTHEST:
            raise UnknownVersion(
                f"{name}: the image {image[:200]!r} is of Kubernetes {found}; the newest known release is 1.{NEWEST}; "
                f"if it reads {found.newest_api_version}, confirm it with --kubernetes-version={found}"
            )
        return found

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``1.34`` or ``v1.34.4``. Raises ValueError with what was expected."""
        if (match := _GIVEN.fullmatch(text)) is None:
            raise ValueError("a release of Kubernetes such as 1.34")
        try:
            return cls._supported(int(match["minor"]), "it")
        except UnknownVersion:
            raise ValueError(f"a release of Kubernetes from 1.{OLDEST} on") from None

    @classmethod
    def _supported(cls, minor: int, name: str) -> Self:
        if minor < OLDEST:
            raise UnknownVersion(f"{name} is of Kubernetes 1.{minor}; expected 1.{OLDEST} or later")
        return cls(minor)

    def reads(self, api_version: str) -> bool:
        """Return whether this release reads configurations of an ``apiVersion``, given with its group."""
        group, _, version = api_version.partition("/")
        if group != GROUP or version not in _READ_BY:
            return False
        first, last = _READ_BY[version]
        return first <= self.minor and (last is None or self.minor <= last)

    @property
    def is_known(self) -> bool:
        """True if the release is not later than the newest known one."""
        return self.minor <= NEWEST

    @property
    def newest_api_version(self) -> str:
        """The ``apiVersion`` for a new configuration: the newest that the release reads.

        A kube-scheduler without a configuration has the defaults of that version. With another one, its plugins would
        have other weights than before.
        """
        return next(f"{GROUP}/{name}" for name in reversed(_READ_BY) if self.reads(f"{GROUP}/{name}"))

    @staticmethod
    def is_api_version(text: str) -> bool:
        """Return whether any release reads configurations of this ``apiVersion``."""
        group, _, version = text.partition("/")
        return group == GROUP and version in _READ_BY

    def __str__(self) -> str:
        return f"1.{self.minor}"

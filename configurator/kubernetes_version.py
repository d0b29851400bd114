"""Parse the release of a kube-scheduler, and name the configuration version that all supported releases read."""

import re
from dataclasses import dataclass
from typing import Self

from configurator.errors import ConfiguratorError

OLDEST = 25  # the oldest supported minor release of Kubernetes 1: the first that reads `API_VERSION`

NEWEST = 37

FARTHEST = 42
"""The last release that is assumed to read what the newest known one reads, for which its image's tag alone is enough.

So far each version of the configuration was supported for that long.
"""

API_VERSION = "kubescheduler.config.k8s.io/v1"

_TAG = re.compile(r"v?1\.(?P<minor>[0-9]{1,3})\.[0-9]{1,3}([-+_.][A-Za-z0-9_.+-]*)?", re.ASCII)
_GIVEN = re.compile(r"v?1\.(?P<minor>[0-9]{1,3})(\.[0-9]{1,3})?([-+_][A-Za-z0-9_.+-]*)?", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class KubernetesVersion:
    """A minor release: ``KubernetesVersion(34)`` is 1.34."""

    minor: int

    @classmethod
    def of_image(cls, image: str, *, name: str) -> Self:
        """Read the tag of an image such as ``registry.k8s.io/kube-scheduler:v1.34.4``. Raises ConfiguratorError."""
        tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
        if (match := _TAG.fullmatch(tag)) is None:
            raise ConfiguratorError(
                f"{name}: the image {image[:200]!r} does not name the release of Kubernetes; name it with "
                "--kubernetes-version, such as --kubernetes-version=1.34"
            )
        found = cls(int(match["minor"]))
        if found.minor < OLDEST:
            raise ConfiguratorError(
                f"{name}: the image {image[:200]!r} is of Kubernetes {found}; the configurator supports 1.{OLDEST} and "
                f"later, which read a configuration of {API_VERSION}; upgrade the control plane first"
            )
        if found.minor > FARTHEST:
            raise ConfiguratorError(
                f"{name}: the image {image[:200]!r} is of Kubernetes {found}; the newest known release is 1.{NEWEST}; "
                f"if it reads {API_VERSION}, confirm it with --kubernetes-version={found}"
            )
        return found

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``1.34`` or ``v1.34.4``. Raises ValueError with what was expected."""
        if (match := _GIVEN.fullmatch(text)) is None:
            raise ValueError("a release of Kubernetes such as 1.34")
        if int(match["minor"]) < OLDEST:
            raise ValueError(f"a release of Kubernetes from 1.{OLDEST} on")
        return cls(int(match["minor"]))

    @property
    def is_known(self) -> bool:
        return self.minor <= NEWEST

    def __str__(self) -> str:
        return f"1.{self.minor}"

"""What the administrator has to act on; nothing was changed on the machine unless the sentence says so."""

from __future__ import annotations

from pathlib import Path

from gas.errors import GasError


class ConfiguratorError(GasError):
    """The configurator cannot or will not go on. ``str()`` is the whole sentence."""


class NotYaml(ConfiguratorError):
    """A file is not the one YAML document that it has to be."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}")


class NotAScheduler(ConfiguratorError):
    """A manifest is not the static pod of a kube-scheduler that can be configured."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}; expected the static pod manifest of a kube-scheduler, named with -m")


class BadConfiguration(ConfiguratorError):
    """A kube-scheduler configuration cannot take the extender."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}")


class BadCertificate(ConfiguratorError):
    """A certificate, key or authority cannot be used."""

    def __init__(self, file: Path, problem: str) -> None:
        super().__init__(f"{file} {problem}")


class NotPutBack(ConfiguratorError):
    """A run failed, and not everything that it had changed could be put back."""


class FileTrouble(ConfiguratorError):
    """A file or directory cannot be read or written, or is not what it has to be."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path} {problem}")

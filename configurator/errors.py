"""Define errors on which the administrator must act. Nothing was changed on the machine unless the sentence says so."""

from pathlib import Path

from gas.values.errors import GasError


class ConfiguratorError(GasError):
    pass


class FileTrouble(ConfiguratorError):
    """A file or directory cannot be read or written, or is of the wrong kind."""

    def __init__(self, file: Path | str, problem: str) -> None:
        super().__init__(f"{file} {problem}")


class NotYaml(FileTrouble):
    pass


class NotAScheduler(FileTrouble):
    def __init__(self, file: Path | str, problem: str) -> None:
        super().__init__(file, f"{problem}; expected the static pod manifest of a kube-scheduler, named with -m")


class BadCertificate(FileTrouble):
    pass


class NotPutBack(ConfiguratorError):
    """A run failed, and not every change could be put back."""

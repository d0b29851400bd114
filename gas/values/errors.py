"""The root of this project's errors."""


class GasError(Exception):
    """The root of every error that this project raises on purpose; ``str()`` is a whole sentence for people.

    The sentence states where the problem is, what was expected, what was found and, where it is not obvious, what to
    do. Any other exception is a bug of this project. ``exit_code`` is that of a program that cannot continue.
    """

    exit_code = 1


class InvalidValue(GasError, ValueError):
    """A value that cannot exist, such as a need of -1 cards. The caller has to correct it."""


class InvalidEntry(ValueError):
    """One entry of a list is invalid. ``str()`` is what was expected, in words, and ``entry`` is what was found."""

    def __init__(self, expected: str, entry: str) -> None:
        super().__init__(expected)
        self.entry = entry


UNDECODABLE = (ValueError, RecursionError)
"""What msgspec raises for bytes that it cannot decode: of another form, not UTF-8, or nested too deeply."""

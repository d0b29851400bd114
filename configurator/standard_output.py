"""What a command tells on its standard output, also when nobody takes it."""

from __future__ import annotations

import sys


class StandardOutput:
    """Written line by line; what is under way shall not fail because it cannot be told.

    Nobody reads on, as with ``| head``: that is no failure. It cannot be written, as on a full disk: the command goes
    on, and ends with a sentence about it and status 1.
    """

    def __init__(self, program: str) -> None:
        self._program = program
        self._problem: str | None = None

    def say(self, text: str) -> None:
        """A line, or several."""
        if sys.stdout is None:  # closed by whoever started the program
            return
        try:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self._problem = self._problem or error.strerror or str(error)

    def exit_code(self, otherwise: int) -> int:
        """The command's; never 0 when something could not be written, which it tells."""
        if self._problem is None:
            return otherwise
        sys.stderr.write(
            f"{self._program}: what it had to say could not be written to the standard output: {self._problem}; "
            "nothing else failed\n"
        )
        return otherwise or 1

"""What a command tells on its standard output, also when nobody takes it."""

from __future__ import annotations

import os
import sys


class StandardOutput:
    """Written text by text; what is under way shall not fail because it cannot be told.

    Nobody reads on, as with ``| head``: that is no failure. It cannot be written, as on a full disk: the command goes
    on, and ends with a sentence about it and a status of its own. Letters that the terminal's locale does not have are
    written as escapes.

    unwritten  the exit code, at least, of a command whose text could not be written
    """

    def __init__(self, program: str, *, unwritten: int = 1) -> None:
        self._program = program
        self._unwritten = unwritten
        self._problem: str | None = None

    def say(self, text: str) -> None:
        """A line, or several; a line end follows where there is none."""
        if sys.stdout is None:  # closed by whoever started the program
            return
        encoding = sys.stdout.encoding or "utf-8"
        whole = text if text.endswith("\n") else text + "\n"
        try:
            sys.stdout.write(whole.encode(encoding, "backslashreplace").decode(encoding))
            sys.stdout.flush()
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self._problem = self._problem or error.strerror or str(error)
            # What is left in the buffer would fail a second time at the end of the program.
            sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 -- it is for the rest of the program

    def exit_code(self, otherwise: int) -> int:
        """The command's; never 0 when something could not be written, which it tells."""
        if self._problem is None:
            return otherwise
        rest = "" if otherwise else "; nothing else failed"
        sys.stderr.write(
            f"{self._program}: what it had to say could not be written to the standard output: {self._problem}{rest}\n"
        )
        return max(otherwise, self._unwritten)


def printed(program: str, text: str) -> int:
    """For a command that has nothing to do but to tell a text, as with ``--help``: that, and its exit code."""
    output = StandardOutput(program)
    output.say(text)
    return output.exit_code(0)

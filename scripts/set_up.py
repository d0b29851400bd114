"""Make the virtual environment of a checkout: ``python3 scripts/set_up.py .venv runtime`` (or ``dev``, after it).

The Makefile calls it. Two calls at the same time in one checkout wait for each other, and the second finds the work
done. It runs with any Python 3, so that a Python that is too old is named in a sentence.
"""

import fcntl
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 11)
INPUTS = {"runtime": ("requirements.lock", "pyproject.toml"), "dev": ("requirements-dev.lock",)}
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def main() -> None:
    """Set up one part of the environment. Its stamp is written last, so that an interrupted set-up starts again."""
    venv, part = Path(sys.argv[1]), sys.argv[2]
    if sys.version_info < OLDEST:
        found = ".".join(map(str, sys.version_info[:3]))
        sys.exit(f"gas needs Python 3.11 or later; found {found}. Name one: make PYTHON=python3.12 …")
    venv.mkdir(parents=True, exist_ok=True)
    stamp = venv / f".{part}"
    with (venv / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when the process ends, however it ends
        if is_newer(stamp, INPUTS[part]):
            return
        python = str(venv / "bin" / "python")
        if part == "runtime":
            sys.stderr.write(f"setting up {venv} with Python {sys.version.split()[0]}\n")
            run(sys.executable, "-m", "venv", str(venv))
            run(python, *PIP, "--require-hashes", "-r", "requirements.lock")
            run(python, *PIP, "--no-deps", "--no-build-isolation", "--editable", ".")
        else:
            run(python, *PIP, "--require-hashes", "-r", "requirements-dev.lock")
        stamp.touch()


def is_newer(stamp: Path, inputs: "tuple[str, ...]") -> bool:
    """Return whether the stamp exists and no input has changed since."""
    return stamp.exists() and all(stamp.stat().st_mtime >= Path(each).stat().st_mtime for each in inputs)


def run(*command: str) -> None:
    """Run a command; end with its exit code if it fails, after the message that it has printed."""
    code = subprocess.call(command)  # noqa: S603
    if code:
        sys.exit(code)


if __name__ == "__main__":
    main()

"""Run programs that must not find the project imported: each in a fork of one process that has its libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_FORK_FOR_EACH = """
import json, os, sys, tempfile, traceback
import aiohttp, asyncio, cachetools, cryptography.x509, grpc, h2.connection, msgspec, prometheus_client
import starlette.applications

written = {}
for name, program in json.load(sys.stdin).items():
    with tempfile.TemporaryFile("w+") as output:
        if (child := os.fork()) == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            try:
                exec(program, {"__name__": "__main__"})
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        output.seek(0)
        written[name] = output.read()
json.dump(written, sys.stdout)
"""


def outputs(programs: Mapping[str, str]) -> dict[str, str]:
    """Return what each program has written, by its name; a traceback if it failed."""
    done = subprocess.run(
        [sys.executable, "-c", _FORK_FOR_EACH],
        input=json.dumps(dict(programs)),
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    written: dict[str, str] = json.loads(done.stdout)
    return written

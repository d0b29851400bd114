"""The processor time of --usage: 2,000 real processes of 250 pods, compared with reading everything each time."""

import asyncio
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from benchmarks.processes import resident_bytes
from benchmarks.real_cluster import ComponentsMissing
from benchmarks.results import Figure, Goal, Results
from gas.plugin.usage.pod_usage import PodUsages
from gas.plugin.usage.process_walk import RECHECK, RECHECK_ALL, ProcessWalker
from gas.plugin.usage.usage_monitor import INTERVAL, PAUSE
from gas.values.card_facts import CardFacts
from gas.values.cards import Card

PODS = 250
PROCESSES = 2000
CLIENTS = 500
FILES = 20
"""Open files of each process."""

ADDRESS = "0000:03:00.0"
SHARE_GOAL = Goal(1)

_CLIENT = """\
pos:\t0
flags:\t02100002
mnt_id:\t26
ino:\t430
drm-driver:\txe
drm-client-id:\t{client}
drm-pdev:\t{address}
drm-total-system:\t0
drm-shared-system:\t0
drm-active-system:\t0
drm-resident-system:\t0
drm-purgeable-system:\t0
drm-total-gtt:\t192 KiB
drm-shared-gtt:\t0
drm-active-gtt:\t0
drm-resident-gtt:\t192 KiB
drm-total-vram0:\t23992 KiB
drm-shared-vram0:\t16 MiB
drm-active-vram0:\t0
drm-resident-vram0:\t23992 KiB
drm-total-stolen:\t0
drm-shared-stolen:\t0
drm-active-stolen:\t0
drm-resident-stolen:\t0
drm-cycles-rcs:\t28257900
drm-total-cycles-rcs:\t7655183225
drm-cycles-bcs:\t0
drm-total-cycles-bcs:\t7655183225
drm-cycles-vcs:\t0
drm-total-cycles-vcs:\t7655183225
drm-engine-capacity-vcs:\t2
drm-cycles-vecs:\t0
drm-total-cycles-vecs:\t7655183225
drm-engine-capacity-vecs:\t2
drm-cycles-ccs:\t0
drm-total-cycles-ccs:\t7655183225
drm-engine-capacity-ccs:\t4
"""


def usage() -> Results:
    """Measure walks that were preceded by enough others, as in a plugin that runs for long."""
    with TemporaryDirectory(prefix="gas-") as name, _pods() as processes:
        proc = Path(name)
        _overlay(proc, processes)
        before = resident_bytes(os.getpid())
        ours, meanwhile, idle = asyncio.run(_measure(proc))
        memory = resident_bytes(os.getpid()) - before
        bare = _read_everything(proc)
    walks = len(ours)
    return Results(
        "usage",
        f"{PROCESSES:,} real processes of {PODS} pods with {FILES} open files each, {CLIENTS} of them "
        f"clients of a card; {walks} walks after {RECHECK}",
        [
            Figure("processor time of a walk", 1000 * sum(ours) / walks, 1000 * bare),
            Figure(
                f"of a core, a walk every {INTERVAL:g} s", 100 * sum(ours) / walks / INTERVAL, unit="%", goal=SHARE_GOAL
            ),
            Figure("longest walk", 1000 * max(ours)),
            Figure("pauses of the event loop meanwhile, 99th percentile", 1000 * meanwhile, 1000 * idle),
            Figure("memory", memory / 1e6, unit="MB"),
        ],
        other="bare",
        notes=[
            "The processes and their cgroups are real. There is no card, so plain files stand in for the clients.",
            "Compared with reading all files each time, and with the event loop while there is no walk.",
        ],
    )


async def _measure(proc: Path) -> tuple[list[float], float, float]:
    """Return the processor seconds of each walk, and pauses of the event loop: in walks, and without.

    A pause is the 99th percentile.
    """
    walker = ProcessWalker(proc, pause=lambda: time.sleep(PAUSE))
    usages = PodUsages()
    pods = {_uid(number) for number in range(PODS)}
    cards = {ADDRESS: CardFacts(card=Card(0), driver="xe", device_id="")}
    seconds: list[float] = []

    def walk() -> None:
        started = time.thread_time()
        found = walker.walk(pods)
        usages.update(found.clients, pods=pods, cards=cards, now=time.monotonic())
        seconds.append(time.thread_time() - started)
        if found.problems or found.processes != PROCESSES or len(found.clients) != CLIENTS:
            raise RuntimeError(f"expected all processes and clients, found {found.processes} and {len(found.clients)}")

    meanwhile: list[float] = []
    for number in range(RECHECK + RECHECK_ALL):
        walking = asyncio.ensure_future(asyncio.to_thread(walk))
        while not walking.done():
            pause = await _pause()
            if number >= RECHECK:
                meanwhile.append(pause)
        await walking
    idle = [await _pause() for _ in meanwhile]
    return seconds[RECHECK:], statistics.quantiles(meanwhile, n=100)[98], statistics.quantiles(idle, n=100)[98]


async def _pause() -> float:
    """Return for how many seconds longer than asked for the event loop slept."""
    before = time.perf_counter()
    await asyncio.sleep(0.001)
    return time.perf_counter() - before - 0.001


def _read_everything(proc: Path) -> float:
    """Return the processor seconds of reading all files of all processes, without any use of what they contain."""
    started = time.thread_time()
    for process in os.scandir(proc):
        _content(f"{process.path}/cgroup")
        for file in os.scandir(f"{process.path}/fdinfo"):
            _content(file.path)
    return time.thread_time() - started


def _content(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 16 * 1024)
    finally:
        os.close(descriptor)


@contextmanager
def _pods() -> Iterator[list[int]]:
    """Start the processes in the cgroups of their pods, and yield their ids."""
    mounted = Path("/sys/fs/cgroup")
    hierarchy = mounted if (mounted / "cgroup.procs").exists() else mounted / "pids"
    if os.geteuid() != 0 or not os.access(hierarchy / "cgroup.procs", os.W_OK):
        raise ComponentsMissing("this benchmark needs root and a writable /sys/fs/cgroup")
    top = hierarchy / f"gas-bench-{os.getpid()}"
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(FILES - 4)]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(PODS):
            group = top / "burstable" / f"pod{_uid(number)}" / f"{number:064x}"
            group.mkdir(parents=True)
            for _ in range(PROCESSES // PODS):
                process = subprocess.Popen(["sleep", "3600"], pass_fds=files)
                processes.append(process)
                (group / "cgroup.procs").write_text(str(process.pid))
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        for descriptor in files:
            os.close(descriptor)
        for directory, _, _ in os.walk(top, topdown=False):
            with suppress(OSError):
                Path(directory).rmdir()


def _overlay(proc: Path, processes: list[int]) -> None:
    """Write a directory for each process: links to its real files, and clients of a card for some."""
    for number, pid in enumerate(processes):
        files = proc / str(pid) / "fdinfo"
        files.mkdir(parents=True)
        for name in ("cgroup", "fd"):
            (proc / str(pid) / name).symlink_to(f"/proc/{pid}/{name}")
        for file in Path(f"/proc/{pid}/fdinfo").iterdir():
            (files / file.name).symlink_to(file)
        if number % (PROCESSES // CLIENTS) == 0:
            (files / "1000").write_text(_CLIENT.format(client=number + 1, address=ADDRESS))
        else:
            (files / "1000").symlink_to(f"/proc/{pid}/fdinfo/0")


def _uid(number: int) -> str:
    return str(UUID(int=number))

"""``python -m sandbox``: exit codes, messages, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gas.plugin.kubelet.plugin_socket import LONGEST_PATH
from sandbox import __main__
from sandbox.demo.sandbox import LONGEST_SOCKET, short_temporary_directory
from tests.sandbox.demo.manifest_files import node, pod, write

_REPOSITORY = Path(__file__).parents[2]


def _started(arguments: Sequence[str | Path], directory: Path) -> subprocess.Popen[str]:
    """Start the demo, with ``directory`` for its temporary files."""
    return subprocess.Popen(
        [sys.executable, "-m", "sandbox", *map(str, arguments)],
        cwd=_REPOSITORY,
        env={**os.environ, "TMPDIR": str(directory)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Make a directory with a path short enough for unix sockets, so that the sandbox uses it for everything."""
    with TemporaryDirectory(prefix="gas-") as directory:
        yield Path(directory)


@pytest.fixture
def here(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Run the demo in this process, and return its exit code."""

    def run(*arguments: str | Path) -> int:
        try:
            return __main__.main([*map(str, arguments)])
        except SystemExit as ended:  # argparse does
            return int(ended.code or 0)

    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    yield run
    assert list(temporary.iterdir()) == []


@pytest.fixture
def one_node(tmp_path: Path) -> Path:
    """Make a directory of examples with one of the three nodes: a demo of it starts two programs less."""
    examples = tmp_path / "examples"
    (examples / "nodes").mkdir(parents=True)
    first, _, _ = (__main__.EXAMPLES / "nodes" / "cluster.yaml").read_text(encoding="utf-8").partition("\n---")
    (examples / "nodes" / "cluster.yaml").write_text(first, encoding="utf-8")
    shutil.copy(__main__.EXAMPLES / "worked-example.yaml", examples)
    return examples


def _programs(directory: Path, module: str = "gas.") -> list[int]:
    """Return the ids of the processes of this project that use files of ``directory``."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f" -m {module}" in line and f"{directory}/" in line:
            found.append(int(file.parent.name))
    return found


@pytest.mark.parametrize(
    ("arguments", "exit_code", "sentence"),
    [
        pytest.param(["missing.yaml"], 2, "gas-sandbox: missing.yaml: cannot be read: No such file", id="missing-file"),
        pytest.param(
            ["a.yaml", "--svg=b.svg"], 2, "--svg draws the examples only; leave out FILE", id="picture-of-a-file"
        ),
        pytest.param(["a.yaml", "b.yaml"], 2, "gas-sandbox: error: unrecognized arguments: b.yaml", id="two-files"),
        pytest.param(["--", "--nonsense"], 2, "gas-sandbox: gas-extender: unknown flag '--nonsense'", id="wrong-flag"),
        pytest.param(["--", "--port=1"], 2, "gas-sandbox: --port: the sandbox sets this flag itself", id="own-flag"),
    ],
)
def test_errors_are_reported_in_a_sentence(
    here: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: list[str], exit_code: int, sentence: str
) -> None:
    assert here(*arguments) == exit_code
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(("extra", "exit_code"), [([], 0), ([17], 2)], ids=["all-used", "one-object-left-out"])
def test_the_demo_of_a_users_own_file(
    tmp_path: Path,
    here: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    extra: list[object],
    exit_code: int,
) -> None:
    assert here(write(tmp_path / "own.json", node("n1"), pod("p"), *extra)) == exit_code
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.endswith("1 of 1 pod got a node.\n")


PATIENCE = 120.0
"""Seconds for the demo to write a line; much longer than it takes."""


def _until(process: subprocess.Popen[str], word: str) -> str:
    """Read the output up to a line with this word, and return the line. Ends a demo that does not write it in time."""
    assert process.stdout is not None
    limit = threading.Timer(PATIENCE, process.send_signal, [signal.SIGINT])
    limit.start()
    try:
        for line in process.stdout:
            if word in line:
                return line
    finally:
        limit.cancel()
    pytest.fail(f"the demo ended without {word}")


@pytest.mark.parametrize(
    ("number", "when", "programs"),
    [
        pytest.param(signal.SIGINT, "worked-1", {2}, id="SIGINT-while-pods-run"),
        pytest.param(signal.SIGTERM, "1 node", {0, 1, 2}, id="SIGTERM-while-it-starts"),
    ],
)
def test_an_interruption_leaves_nothing_behind(
    temporary: Path, one_node: Path, number: signal.Signals, when: str, programs: set[int]
) -> None:
    process = _started([one_node], temporary)
    _until(process, when)
    assert len(_programs(temporary)) in programs
    for _ in range(2):  # people press Ctrl-C more than once
        os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert errors == ""
    assert process.returncode == 130
    assert list(temporary.iterdir()) == []
    assert _programs(temporary) == []


@pytest.mark.parametrize(
    ("module", "name"),
    [("gas.extender", "the extender"), ("gas.plugin", "the plugin of node ")],
    ids=["extender", "plugin"],
)
def test_the_demo_ends_with_a_sentence_if_a_program_ends(
    temporary: Path, one_node: Path, module: str, name: str
) -> None:
    process = _started([one_node], temporary)
    _until(process, "i915=20")
    os.kill(_programs(temporary, module)[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert errors.startswith(f"gas-sandbox: {name}")
    assert " ended with exit code -9. Its last output:\n" in errors
    assert "Traceback" not in errors
    assert process.returncode == 1
    assert list(temporary.iterdir()) == []
    assert _programs(temporary) == []


def _fetched(url: str) -> str:
    """Return the body of a response, empty while the page is not ready."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            text: str = response.read().decode()
            return text
    except OSError:
        return ""


def _pods_on_the_page(address: str) -> dict[str, str | None]:
    """Return the node of each pod that the page shows, None for one that waits."""
    text = _fetched(f"{address}data/pods")
    return {each["name"]: each["node"] for each in json.loads(text)["pods"]} if text else {}


def test_the_page_of_the_demo_shows_the_pods_of_the_examples(temporary: Path, one_node: Path) -> None:
    process = _started(["--page", one_node], temporary)
    try:
        address = _until(process, "The page: ").split()[2]
        deadline = time.monotonic() + 120
        while "page.js" not in (text := _fetched(address)):
            assert time.monotonic() < deadline, text
            time.sleep(0.2)
        while "worked-3" not in (nodes := _pods_on_the_page(address)) or nodes["worked-1"] != "worked-example":
            assert time.monotonic() < deadline, nodes
            time.sleep(0.2)
        assert nodes["worked-3"] is None
        node = json.loads(_fetched(f"{address}data/node?name=worked-example"))
        assert (node["ready"], [card["health"] for card in node["cards"]]) == (True, ["ok", "ok"])
    finally:
        os.killpg(process.pid, signal.SIGINT)
        lines, errors = process.communicate(timeout=60)
    assert lines.strip() == ""  # so the address stays in sight
    assert errors == ""
    assert process.returncode == 130
    assert list(temporary.iterdir()) == []
    assert _programs(temporary) == []


def test_the_page_of_the_demo_shows_the_cluster_of_a_file(temporary: Path, one_node: Path) -> None:
    process = _started(["--page", one_node / "nodes" / "cluster.yaml"], temporary)
    try:
        address = _until(process, "The page: ").split()[2]
        deadline = time.monotonic() + 60
        while '"i915"' not in (text := _fetched(f"{address}data/cluster")):
            assert time.monotonic() < deadline, text
            time.sleep(0.2)
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert _programs(temporary) == []


def test_sockets_are_elsewhere_if_temporary_files_have_long_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 20)))
    with short_temporary_directory() as directory:
        assert len(os.fsencode(f"{directory}/{LONGEST_SOCKET}")) <= LONGEST_PATH


def test_the_demo_ends_if_its_output_is_closed(temporary: Path, one_node: Path) -> None:
    process = _started([one_node], temporary)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) != 0
    assert list(temporary.iterdir()) == []
    assert _programs(temporary) == []

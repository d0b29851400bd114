"""The command line of gas-configurator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from configurator.__main__ import main
from configurator.flags import parse_flags
from gas.daemon.flags import UsageError
from tests.configurator.control_plane_files import ControlPlaneFiles


# contract E15.1
def test_defaults_are_the_originals() -> None:
    flags = parse_flags([])
    assert flags.backups == Path("/etc/kubernetes")
    assert flags.manifest == Path("/etc/kubernetes/manifests/kube-scheduler.yaml")
    assert flags.signing == (Path("/etc/kubernetes/pki/ca.crt"), Path("/etc/kubernetes/pki/ca.key"))
    assert not flags.dry_run


# contract E15.1
def test_flags_of_the_original_with_one_dash() -> None:
    line = "-b /b -cert c -key k -cert-dir /certs -d /d/ -f f.yaml -m /m/x.yaml -dry-run"
    flags = parse_flags(line.split(" "))
    assert flags.signing == (Path.cwd() / "c", Path.cwd() / "k")
    assert (flags.backups, flags.certificate_directory) == (Path("/b"), Path("/certs"))
    assert (flags.configuration_directory, flags.template) == (Path("/d"), Path.cwd() / "f.yaml")
    assert (flags.manifest, flags.dry_run) == (Path("/m/x.yaml"), True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        pytest.param(["-cert=x"], "-cert and -key belong together", id="half a pair"),
        pytest.param(["--serving-cert=x"], "belong together: name all three", id="a third of the serving pair"),
        pytest.param(["--client-ca=x"], "which is missing", id="an authority without a certificate"),
        pytest.param(
            ["-cert=x", "-key=y", "--client-ca=z", "--cluster-ca"],
            "name one of them",
            id="two ways to get a client certificate",
        ),
        pytest.param(["--undo", "--dry-run"], "--undo cannot be combined with", id="undo as a preview"),
        pytest.param(["--undo", "-b=/dev/null"], "needs the directory of the backups", id="undo of nothing"),
        pytest.param(["--url=http://x"], "expected https://HOST:PORT", id="an address without TLS"),
        pytest.param(["--url=https://x:9001/path"], "nothing after it", id="an address with a path"),
        pytest.param(["--url=https://a b:9001"], "expected https://HOST:PORT", id="an address with a space"),
        pytest.param(["--url=https://x:99999"], "expected https://HOST:PORT", id="a port over the highest"),
        pytest.param(
            ["--san=a,b_,c"],
            "flag --san: expected DNS names or IP addresses with commas between them, found 'b_'",
            id="a name with an underscore",
        ),
        pytest.param(["--san=a,,b"], "with commas between them, found ''", id="an empty name"),
        pytest.param(["--san=a\nb"], "with commas between them, found 'a\\nb'", id="a name of two lines"),
        pytest.param(["--secret=name"], "NAMESPACE/NAME", id="a Secret without namespace"),
        pytest.param(["--secret=a/b\nc: d"], "NAMESPACE/NAME", id="a Secret that would be YAML"),
        pytest.param(["--secret=a.b/c"], "NAMESPACE/NAME", id="a namespace that no API server takes"),
        pytest.param([f"--secret={'a' * 64}/c"], "NAMESPACE/NAME", id="a namespace that is too long"),
        pytest.param(["--secret=a/b..c"], "NAMESPACE/NAME", id="a name that no API server takes"),
        pytest.param([f"--secret=a/{'b' * 254}"], "NAMESPACE/NAME", id="a name that is too long"),
        pytest.param(["--kubernetes-version=1.24"], "a release of Kubernetes from 1.25 on", id="an old release"),
        pytest.param(
            ["--kubernetes-version=new"], "a release of Kubernetes such as", id="a version that is not a release"
        ),
        pytest.param(["-m="], "expected a path", id="an empty path"),
        pytest.param(["--color=red"], "auto, always or never", id="another colour"),
        pytest.param(["-dryrun"], "did you mean --dry-run?", id="a typo"),
        pytest.param(["now"], "expected only flags", id="an argument that is not a flag"),
    ],
)
def test_invalid_command_lines_are_refused_with_a_sentence(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_flags(words)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_it_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    def stopped(*_: object, **__: object) -> None:
        os.kill(os.getpid(), number)
        time.sleep(5)

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr("configurator.program.run", stopped)
    monkeypatch.setattr(sys, "argv", ["gas-configurator"])
    try:
        assert main() == 130
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert capsys.readouterr().err == "gas-configurator: stopped; no file was left half-way, run it again to go on\n"


def configurator(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(
        [sys.executable, *words], stderr=subprocess.PIPE, text=True, env=environment, timeout=60, **options
    )


def dry_run(files: ControlPlaneFiles) -> list[str]:
    places = [f"-m={files.manifest}", f"-b={files.etc}", f"--pki-dir={files.own}", f"-d={files.etc}"]
    return [*places, f"-cert-dir={files.certificates}", "-dry-run"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(["--version"], 0, id="asked for its version"),
        pytest.param(["--nonsense"], 2, id="bad usage"),
        pytest.param(["-m=/none/kube-scheduler.yaml", "-dry-run"], 1, id="refused"),
    ],
)
def test_exit_code_and_one_sentence(words: list[str], code: int) -> None:
    ended = configurator("-m", "configurator", *words, stdout=subprocess.PIPE)
    assert ended.returncode == code
    assert (ended.stderr.count("\n"), ended.stdout.count("\n")) == ((0, 1) if code == 0 else (1, 0))
    assert (ended.stderr or ended.stdout).startswith("gas-configurator")


def test_a_difference_that_cannot_be_written_is_reported(files: ControlPlaneFiles) -> None:
    with Path("/dev/full").open("w") as full:
        ended = configurator("-m", "configurator", *dry_run(files), stdout=full)
    said = "gas-configurator: cannot write to standard output: No space left on device; nothing else failed\n"
    assert (ended.returncode, ended.stderr) == (1, said)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_when_all_is_done_shows_no_traceback(files: ControlPlaneFiles, name: str) -> None:
    """Python runs such functions after the program's last line."""
    program = (
        "import atexit, os, signal, sys\n"
        "from configurator.__main__ import main\n"
        f"atexit.register(lambda: os.kill(os.getpid(), signal.{name}))\n"
        "sys.exit(main())\n"
    )
    ended = configurator("-c", program, *dry_run(files), stdout=subprocess.PIPE)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "would be changed" in ended.stdout

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gas.daemon.flags import UsageError
from gas.extender.admission.flags import AdmissionFlags
from gas.extender.command_line import parse_flags
from gas.extender.flags import Flags
from gas.placement.order import DEFAULT_ORDER, NATURAL, BestFit, CardOrder, LeastUsed, UsedFirst
from gas.values.amounts import MemoryUnit
from gas.vocabularies.aliyun.vocabulary import Aliyun, AliyunFlags
from gas.vocabularies.intel.vocabulary import INTEL
from gas.vocabularies.selection import KNOWN_NAMES


def parsed(*argv: str) -> Flags:
    return parse_flags(argv)


def all_values(flags: Flags) -> dict[str, Any]:
    """Return the value of each flag by its name, those of the parts included."""
    records: tuple[Any, ...] = (flags, *flags.parts.values())
    return {
        field.metadata["flag"].name: getattr(record, field.name)
        for record in records
        for field in fields(record)
        if "flag" in field.metadata
    }


# contract E10.1, E12.1
def test_defaults() -> None:
    assert parsed() == Flags(
        kube_config=None,
        port=9001,
        bind_address="",
        metrics_port=9002,
        metrics_address="",
        cert=Path("/gas/cert/tls.crt"),
        key=Path("/gas/cert/tls.key"),
        cacert=Path("/etc/kubernetes/pki/ca.crt"),
        allowed_names=frozenset(),
        max_request_bytes=67108864,
        shutdown_timeout=20.0,
        vocabularies=(INTEL,),
        allowlist=False,
        denylist=False,
        balanced_resource=None,
        card_order=None,
        order_for_all=False,
        card_near=False,
        search_steps=None,
        qps=None,
        burst=None,
        verbosity=0,
        log_format="text",
        show_version=False,
        show_help=False,
        warnings=(),
        parts=parsed().parts,
    )
    assert parsed().of(AliyunFlags).unit is MemoryUnit.MIB
    assert parsed().of(AdmissionFlags) == AdmissionFlags(
        port=0, certificate=None, key=None, client_ca=None, client_names=frozenset()
    )


# contract E12.1
@pytest.mark.parametrize(
    ("argv", "flag", "value"),
    [
        pytest.param(["--port=1"], "port", 1, id="port"),
        pytest.param(["-v=4"], "v", 4, id="v"),
        pytest.param(["--kubeConfig", "/k"], "kubeConfig", "/k", id="kubeConfig"),
        pytest.param(["--cert=/c"], "cert", Path("/c"), id="cert"),
        pytest.param(["--key=/k"], "key", Path("/k"), id="key"),
        pytest.param(["--cacert=/ca"], "cacert", Path("/ca"), id="cacert"),
        pytest.param(["--cert", "~/c"], "cert", Path.home() / "c", id="home-directory"),
        pytest.param(["--enableAllowlist"], "enableAllowlist", True, id="boolean-alone"),
        pytest.param(["-enableDenylist"], "enableDenylist", True, id="boolean-alone-one-dash"),
        pytest.param(["--balancedResource", "memory.max"], "balancedResource", "memory.max", id="balanced"),
        pytest.param(["--balancedResource="], "balancedResource", None, id="balanced-empty"),
        pytest.param(["--card-order=used-first"], "card-order", UsedFirst(), id="card-order"),
        pytest.param(["--card-order=best-fit=tiles"], "card-order", BestFit("tiles"), id="card-order-by-resource"),
        pytest.param(["--card-order="], "card-order", None, id="card-order-empty"),
        pytest.param(["--card-order-for-all"], "card-order-for-all", True, id="card-order-for-all"),
        pytest.param(["--card-near"], "card-near", True, id="card-near"),
        pytest.param(["--search-steps=5000"], "search-steps", 5000, id="search-steps"),
        pytest.param(["--admission-port=9443"], "admission-port", 9443, id="admission-port"),
        pytest.param(["--admission-certificate=/c"], "admission-certificate", Path("/c"), id="admission-certificate"),
        pytest.param(["--admission-key=/k"], "admission-key", Path("/k"), id="admission-key"),
        pytest.param(["--admission-client-ca=/ca"], "admission-client-ca", Path("/ca"), id="admission-client-ca"),
        pytest.param(["--admission-client-ca="], "admission-client-ca", None, id="admission-client-ca-empty"),
        pytest.param(["--metrics-port=0"], "metrics-port", 0, id="any-free-port"),
        pytest.param(["--metrics-address=::1"], "metrics-address", "::1", id="ipv6"),
        pytest.param(["--bind-address=[::1]"], "bind-address", "::1", id="ipv6-in-brackets"),
        pytest.param(["--bind-address="], "bind-address", "", id="every-address"),
        pytest.param(["--allowed-names=a, b.c"], "allowed-names", frozenset({"a", "b.c"}), id="names"),
        pytest.param(["--allowed-names="], "allowed-names", frozenset(), id="no-names"),
        pytest.param(["--max-request-bytes=10"], "max-request-bytes", 10, id="max-request-bytes"),
        pytest.param(["--log-format=json"], "log-format", "json", id="json-logs"),
        pytest.param(["--shutdown-timeout=1.5m"], "shutdown-timeout", 90.0, id="minutes"),
        pytest.param(["--shutdown-timeout=500ms"], "shutdown-timeout", 0.5, id="milliseconds"),
        pytest.param(["--shutdown-timeout=7"], "shutdown-timeout", 7.0, id="plain-seconds"),
        pytest.param(["--version"], "version", True, id="version"),
    ],
)
def test_flag(argv: list[str], flag: str, value: Any) -> None:
    found, defaults = all_values(parsed(*argv)), all_values(parsed())
    assert found[flag] == value
    assert found | {flag: None} == defaults | {flag: None}


@pytest.mark.parametrize(
    ("argv", "order", "warnings"),
    [
        pytest.param([], DEFAULT_ORDER, (), id="natural-by-default"),
        pytest.param(["--card-order=natural"], NATURAL, (), id="natural-by-choice"),
        pytest.param(["--balancedResource=tiles"], LeastUsed("tiles"), (), id="balanced-is-least-used"),
        pytest.param(["--balancedResource=tiles", "--card-order=least-used=tiles"], LeastUsed("tiles"), (), id="both"),
        pytest.param(
            ["--balancedResource=tiles", "--card-order=natural"],
            NATURAL,
            ("flag --balancedResource: ignored, because --card-order is given as well",),
            id="the-new-flag-wins",
        ),
        pytest.param(
            ["--balancedResource=gpu.intel.com/millicores"],
            LeastUsed("gpu.intel.com/millicores"),
            (
                "flag --balancedResource: no card has a resource named 'gpu.intel.com/millicores', so all cards count"
                " as equally used; leave the prefix out, as in --balancedResource=millicores",
            ),
            id="a-prefix-as-the-original-takes-it",
        ),
    ],
)
def test_the_order_of_cards(argv: list[str], order: CardOrder, warnings: tuple[str, ...]) -> None:
    flags = parsed(*argv)
    assert flags.order_of_cards == order
    assert flags.warnings == warnings


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        pytest.param(
            ["--card-order=spread"],
            "flag --card-order: expected natural|least-used[=RESOURCE]|most-used|best-fit=RESOURCE"
            "|fewest-containers|used-first,"
            " found 'spread'",
            id="unknown-order",
        ),
        pytest.param(
            ["--card-order=least-used=gpu.intel.com/millicores"],
            "flag --card-order: expected natural|least-used[=RESOURCE]|most-used|best-fit=RESOURCE"
            "|fewest-containers|used-first,"
            " with a RESOURCE named without its prefix, such as millicores, found"
            " 'least-used=gpu.intel.com/millicores'",
            id="resource-with-a-prefix",
        ),
        pytest.param(["--prot=1"], "unknown flag '--prot', did you mean --port?", id="unknown-near"),
        pytest.param(["--kubeconfig=x"], "unknown flag '--kubeconfig', did you mean --kubeConfig?", id="case"),
        pytest.param(["--port=x"], "flag --port: expected a port, 0 to 65535, found 'x'", id="text-for-a-number"),
        pytest.param(
            ["--port=65536"], "flag --port: expected a port, 0 to 65535, found '65536'", id="over-the-highest-port"
        ),
        pytest.param(["--port="], "flag --port: expected a port, 0 to 65535, found ''", id="empty-port"),
        pytest.param(["--port=-1"], "flag --port: expected a port, 0 to 65535, found '-1'", id="negative"),
        pytest.param(["--port=٣"], "flag --port: expected a port, 0 to 65535, found '٣'", id="other-digits"),
        pytest.param(["-v=x"], "flag -v: expected a whole number, 0 or more, found 'x'", id="verbosity"),
        pytest.param(
            ["--enableAllowlist=yes"], "flag --enableAllowlist: expected true or false, found 'yes'", id="bool"
        ),
        pytest.param(["--qps=0"], "flag --qps: expected a number over 0, found '0'", id="qps-zero"),
        pytest.param(["--qps=nan"], "flag --qps: expected a number over 0, found 'nan'", id="qps-nan"),
        pytest.param(["--burst=1.5"], "flag --burst: expected a whole number, 1 or more, found '1.5'", id="burst"),
        pytest.param(
            ["--vocabularies=inlet"],
            "flag --vocabularies: expected vocabularies with commas between them, of these: "
            f"{KNOWN_NAMES}, found 'inlet'",
            id="an-unknown-vocabulary",
        ),
        pytest.param(["--aliyun-unit=GB"], "flag --aliyun-unit: expected MiB or GiB, found 'GB'", id="an-unknown-unit"),
        pytest.param(["--search-steps=0"], "flag --search-steps: expected a whole number, 1 or more", id="steps"),
        pytest.param(["--log-format=xml"], "flag --log-format: expected text or json, found 'xml'", id="format"),
        pytest.param(["--bind-address=here"], "flag --bind-address: expected an IP address", id="address"),
        pytest.param(["--cert="], "flag --cert: expected the path of a file", id="empty-path"),
        pytest.param(
            ["--admission-client-names=a"],
            "flag --admission-client-names: without --admission-client-ca callers need no certificate",
            id="admission-names-without-authority",
        ),
        pytest.param(["--allowed-names=a,,b"], "flag --allowed-names: expected a comma-separated list", id="names"),
        pytest.param(["--shutdown-timeout=1h"], "flag --shutdown-timeout: expected a time such as", id="time"),
    ],
)
def test_invalid_command_lines_are_refused_with_one_sentence(argv: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        parsed(*argv)
    assert str(error.value).startswith(sentence)
    assert str(error.value).endswith("; see --help")
    assert error.value.exit_code == 2


# contract E12.2
@pytest.mark.parametrize(
    ("argv", "qps", "burst", "warnings"),
    [
        pytest.param([], None, None, 0, id="no-limit-by-default"),
        pytest.param(["--qps=20"], 20.0, 10, 0, id="qps-alone-takes-the-originals-burst"),
        pytest.param(["--burst=20"], 5.0, 20, 0, id="burst-alone-takes-the-originals-qps"),
        pytest.param(["--qps=0.5", "--burst=1"], 0.5, 1, 0, id="both"),
        pytest.param(["--qps=1000", "--burst=1000"], 1000.0, 1000, 0, id="at-the-cap"),
        pytest.param(["--qps=1001", "--burst=5000"], 1000.0, 1000, 2, id="over-the-cap"),
    ],
)
def test_request_limit(argv: list[str], qps: float | None, burst: int | None, warnings: int) -> None:
    flags = parsed(*argv)
    assert (flags.qps, flags.burst, len(flags.warnings)) == (qps, burst, warnings)


def test_names_of_webhook_clients() -> None:
    flags = parsed("--admission-client-ca=/ca", "--admission-client-names=a, b.c")
    assert flags.of(AdmissionFlags).client_names == {"a", "b.c"}


# contract A1.3
@pytest.mark.parametrize("name", ["aliyun-unit", "memory-unit"])
def test_a_vocabulary_has_its_settings(name: str) -> None:
    flags = parsed("--vocabularies=aliyun,intel", f"--{name}=GiB")
    assert flags.vocabularies == (INTEL, Aliyun(unit=MemoryUnit.GIB))
    assert parsed("--vocabularies=aliyun").vocabularies == (Aliyun(unit=MemoryUnit.MIB),)
    assert flags.warnings == ()


def test_a_setting_of_a_vocabulary_that_is_switched_off_gives_a_warning() -> None:
    assert parsed("--aliyun-unit=GiB").warnings == ("ignored: --aliyun-unit; it needs aliyun among --vocabularies",)


@pytest.mark.parametrize(
    ("argv", "warning", "switch"),
    [
        (
            ["--admission-client-ca=/ca", "--admission-port=0"],
            "--admission-client-ca; set --admission-port",
            "--admission-port=9443",
        ),
    ],
)
def test_flags_of_a_part_that_is_off_give_a_warning(argv: list[str], warning: str, switch: str) -> None:
    assert parsed(*argv).warnings == (f"ignored: {warning} as well",)
    assert parsed(*argv, switch).warnings == ()


def test_the_flags_of_the_page_are_ignored_with_a_warning_that_says_where_it_is() -> None:
    flags = parsed("--page-port=9004", "--page-hosts=a")
    assert flags.given == frozenset()
    assert flags.warnings == (
        "ignored: --page-port, --page-hosts; the program gas-page serves the page, in a container of its own, see"
        " docs/page.md",
    )


# contract E12.5
def test_the_other_flags_of_klog_are_ignored_with_one_warning() -> None:
    flags = parsed(
        "-logtostderr",
        "-alsologtostderr=false",
        "--stderrthreshold=INFO",
        "-vmodule=a=1",
        "-log_dir",
        "/tmp",
        "-log_file=x",
        "-one_output",
        "-add_dir_header",
        "-skip_headers",
        "-skip_log_headers",
        "-log_file_max_size=1",
        "-log_backtrace_at=a:1",
        "--port=5",
    )
    assert flags.port == 5
    (warning,) = flags.warnings
    assert "--logtostderr" in warning
    assert "--log_backtrace_at" in warning
    assert "--port" not in warning

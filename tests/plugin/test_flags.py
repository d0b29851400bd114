from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from gas.daemon.flags import UsageError, help_text
from gas.plugin.devices.allocation import ByPath
from gas.plugin.devices.allocation_policy import AllocationPolicy
from gas.plugin.devices.device_lists import Monitoring
from gas.plugin.flags import Environment, Flags, MalformedVariable, WriteNode, parse_flags, read_environment
from gas.values.amounts import MemoryUnit
from gas.vocabularies.aliyun.vocabulary import Aliyun, AliyunFlags
from gas.vocabularies.intel.vocabulary import INTEL
from gas.vocabularies.selection import KNOWN_NAMES


def parsed(*argv: str, environ: dict[str, str] | None = None, host_name: str = "Host-1") -> Flags:
    return parse_flags(argv, environ=environ or {}, host_name=host_name)


# contract P2.3, P2.8
def test_defaults() -> None:
    assert replace(parsed(), parts={}) == Flags(
        shared_dev_num=1,
        allocation_policy=AllocationPolicy.NONE,
        resource_manager=True,
        enable_monitoring=False,
        topology_hints=False,
        split_monitoring=False,
        by_path=ByPath.SINGLE,
        vocabularies=(INTEL,),
        card_sources=frozenset({"sysfs"}),
        prefix=Path("/"),
        allow_ids=frozenset(),
        deny_ids=frozenset(),
        node_name="host-1",
        kubelet_dir=Path("/var/lib/kubelet"),
        device_plugins_dir=None,
        write_node=WriteNode.PATCH,
        uninstall=False,
        kube_config=None,
        metrics_port=9003,
        metrics_address="",
        verbosity=0,
        log_format="text",
        show_version=False,
        show_help=False,
        warnings=(),
    )
    assert parsed().of(AliyunFlags).unit is MemoryUnit.MIB


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        pytest.param(["-shared-dev-num", "10"], "shared_dev_num", 10, id="shared-dev-num"),
        pytest.param(["-allocation-policy=packed"], "allocation_policy", AllocationPolicy.PACKED, id="policy"),
        pytest.param(["-enable-monitoring"], "enable_monitoring", True, id="monitoring"),
        pytest.param(["--topology-hints"], "topology_hints", True, id="topology-hints"),
        pytest.param(["-prefix", "/fake"], "prefix", Path("/fake"), id="prefix"),
        pytest.param(["-shared-dev-num=1000"], "shared_dev_num", 1000, id="the-maximum"),
        pytest.param(["-bypath=all"], "by_path", ByPath.ALL, id="bypath"),
        pytest.param(["-allow-ids=0x56C0,0x56c1"], "allow_ids", frozenset({"0x56c0", "0x56c1"}), id="allow-ids"),
        pytest.param(["-deny-ids", "0x56c0"], "deny_ids", frozenset({"0x56c0"}), id="deny-ids"),
        pytest.param(["-resource-manager"], "resource_manager", True, id="resource-manager"),
        pytest.param(["--node-name=gpu-7"], "node_name", "gpu-7", id="node-name"),
        pytest.param(["--kubelet-dir=/k"], "kubelet_dir", Path("/k"), id="kubelet-dir"),
        pytest.param(["--device-plugins-dir=/d"], "device_plugins_dir", Path("/d"), id="device-plugins-dir"),
        pytest.param(["--write-node=none"], "write_node", WriteNode.NONE, id="write-node"),
        pytest.param(["--uninstall"], "uninstall", True, id="uninstall"),
        pytest.param(["--kubeConfig=/k"], "kube_config", "/k", id="kubeConfig"),
        pytest.param(["--metrics-port=0"], "metrics_port", 0, id="metrics-port"),
        pytest.param(["--metrics-address=::1"], "metrics_address", "::1", id="metrics-address"),
        pytest.param(["-v=4"], "verbosity", 4, id="v"),
        pytest.param(["--log-format=json"], "log_format", "json", id="log-format"),
        pytest.param(["--version"], "show_version", True, id="version"),
    ],
)
def test_flag(argv: list[str], field: str, value: Any) -> None:
    flags = parsed(*argv)
    assert getattr(flags, field) == value
    rest = {each.name for each in fields(Flags)} - {field, "given", "warnings"}
    assert all(getattr(flags, name) == getattr(parsed(), name) for name in rest)


@pytest.mark.parametrize(
    ("argv", "monitoring"),
    [
        pytest.param([], Monitoring.NONE, id="neither"),
        pytest.param(["-enable-monitoring"], Monitoring.ONE, id="one-resource"),
        pytest.param(["-enable-monitoring", "-split-monitoring"], Monitoring.SPLIT, id="a-resource-for-each-driver"),
        pytest.param(["-split-monitoring"], Monitoring.NONE, id="splitting-alone-offers-nothing"),
    ],
)
def test_monitoring_resources(argv: list[str], monitoring: Monitoring) -> None:
    assert parsed(*argv).monitoring is monitoring


def test_an_empty_prefix_is_the_root_directory_as_with_intels_plugin() -> None:
    assert parsed("-prefix=") == parsed("-prefix", "") == parsed()


# contract P2.8
def test_without_the_resource_manager_nothing_is_written_on_the_node() -> None:
    flags = parsed("-resource-manager=false")
    assert (flags.resource_manager, flags.write_node, flags.warnings) == (False, WriteNode.NONE, ())


@pytest.mark.parametrize(
    ("argv", "warning"),
    [
        pytest.param(
            ["-resource-manager=false", "--write-node=patch"],
            "ignored: --write-node=patch; with --resource-manager=false nothing is written",
            id="writing-without-the-resource-manager",
        ),
        pytest.param(
            ["--split-monitoring"],
            "ignored: --split-monitoring; it needs --enable-monitoring",
            id="splitting-no-monitoring",
        ),
        pytest.param(["-logtostderr"], "ignored: --logtostderr; logs go to stderr, see -v and --log-format", id="klog"),
        pytest.param(
            ["-health-management", "-wsl", "-temp-limit", "90", "-gpu-temp-limit=90", "-memory-temp-limit=90"],
            "ignored: --health-management, --wsl, --temp-limit, --gpu-temp-limit, --memory-temp-limit; there is no"
            " Level-Zero sidecar, and a card is healthy if the kernel shows it completely",
            id="the-level-zero-sidecar",
        ),
        pytest.param(
            ["--mps=false", "--health-check", "--query-kubelet", "--kubelet-port=10250"],
            "ignored: --mps, --health-check, --query-kubelet, --kubelet-port; of Aliyun's plugin; health is always"
            " checked, pods come from the API server, and for MPS there is --fence",
            id="aliyuns-plugin",
        ),
    ],
)
def test_flags_without_effect_give_a_warning(argv: list[str], warning: str) -> None:
    assert parsed(*argv).warnings == (warning,)


# contract A1.3
@pytest.mark.parametrize("name", ["aliyun-unit", "memory-unit"])
def test_a_vocabulary_has_its_settings(name: str) -> None:
    flags = parsed("--vocabularies=intel,aliyun", f"--{name}=GiB")
    intel, second = flags.vocabularies
    assert (intel, second) == (INTEL, Aliyun(unit=MemoryUnit.GIB))
    assert flags.warnings == ()


def test_a_setting_of_a_vocabulary_that_is_switched_off_gives_a_warning() -> None:
    assert parsed("--aliyun-unit=GiB").warnings == ("ignored: --aliyun-unit; it needs aliyun among --vocabularies",)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        pytest.param(["-shared-dev-num=0"], "expected a whole number from 1 to 1000, found '0'", id="no-device"),
        pytest.param(
            ["-shared-dev-num=1001"], "expected a whole number from 1 to 1000, found '1001'", id="too-many-devices"
        ),
        pytest.param(["-allocation-policy=x"], "expected none, balanced, packed or near, found 'x'", id="policy"),
        pytest.param(["-bypath=x"], "expected single, none or all, found 'x'", id="bypath"),
        pytest.param(["--write-node=x"], "flag --write-node: expected patch, ", id="write-node"),
        pytest.param(["--card-sources=sysfs,"], "each once, of these: sysfs", id="no-source"),
        pytest.param(["--card-sources=SYSFS"], "each once, of these: sysfs", id="unknown-source"),
        pytest.param(["--card-sources=sysfs,sysfs"], "each once, of these: sysfs", id="a-source-twice"),
        pytest.param(
            ["-allow-ids=0x56c0,56c1"],
            "flag --allow-ids: expected PCI device ids such as 0x56c0,0x56c1, found '56c1'",
            id="malformed-pci-id",
        ),
        pytest.param(["-allow-ids=0x56c0", "-deny-ids=0x56c1"], "exclude each other", id="allowed-and-denied"),
        pytest.param(["--kubelet-dir="], "flag --kubelet-dir: expected the path of a directory, found ''", id="empty"),
        pytest.param(
            [f"--kubelet-dir={__file__}"],
            f"flag --kubelet-dir: expected the path of a directory, not of a file, found '{__file__[:79]}",
            id="a-file-for-a-directory",
        ),
        pytest.param(
            ["--vocabularies=inlet"],
            f"commas between them, of these: {KNOWN_NAMES}, found 'inlet'",
            id="unknown-vocabulary",
        ),
        pytest.param(["--node-name=No_Name"], "flag --node-name: expected a Kubernetes name", id="node-name"),
        pytest.param(["-shared-dev-nums=2"], "did you mean --shared-dev-num?", id="misspelt"),
    ],
)
def test_invalid_command_lines_are_refused(argv: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        parsed(*argv)
    assert sentence in str(raised.value)


class TestNodeName:
    def test_the_environment_names_it(self) -> None:
        assert parsed(environ={"NODE_NAME": "gpu-7"}).node_name == "gpu-7"

    def test_a_flag_wins_over_the_environment(self) -> None:
        assert parsed("--node-name=gpu-8", environ={"NODE_NAME": "gpu-7"}).node_name == "gpu-8"

    def test_a_name_that_cannot_be_a_nodes_is_refused_with_its_source(self) -> None:
        with pytest.raises(UsageError, match="environment variable NODE_NAME: expected a Kubernetes name"):
            parsed(environ={"NODE_NAME": "no_name"})
        with pytest.raises(UsageError, match="the host's name: expected a Kubernetes name"):
            parsed(host_name="no_name")


def test_help_names_every_environment_variable() -> None:
    for variable in ("NODE_NAME", "GPU_MEMORY_OVERRIDE", "GPU_MEMORY_RESERVED", "GPU_PCI_GROUPING_LEVEL"):
        assert variable in help_text(Flags)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({}, Environment(), id="nothing-set"),
        pytest.param({"GPU_MEMORY_OVERRIDE": " ", "GPU_MEMORY_RESERVED": ""}, Environment(), id="set-to-nothing"),
        pytest.param({"GPU_MEMORY_OVERRIDE": "8000000000"}, Environment(memory_override=8_000_000_000), id="override"),
        pytest.param({"GPU_MEMORY_OVERRIDE": "0"}, Environment(), id="an-override-of-0-is-none"),
        pytest.param({"GPU_MEMORY_RESERVED": "1Gi"}, Environment(memory_reserved=2**30), id="reserved"),
        pytest.param({"GPU_PCI_GROUPING_LEVEL": "3"}, Environment(pci_grouping_level=3), id="grouping-level"),
        pytest.param({"HOME": "/root"}, Environment(), id="others-do-not-count"),
    ],
)
def test_variables(variables: dict[str, str], expected: Environment) -> None:
    assert read_environment(variables) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("lots", "expected a quantity such as 5, 500k or 5Gi, found 'lots'", id="a-word"),
        pytest.param("-1", "expected a number that is not negative, found '-1'", id="negative"),
        pytest.param("2Ei", "expected at most 1125899906842624, found '2Ei'", id="more-than-any-card-has"),
    ],
)
@pytest.mark.parametrize("name", ["GPU_MEMORY_OVERRIDE", "GPU_MEMORY_RESERVED", "GPU_PCI_GROUPING_LEVEL"])
def test_a_value_that_is_not_a_number_is_refused(name: str, text: str, why: str) -> None:
    with pytest.raises(MalformedVariable) as refused:
        read_environment({name: text})
    assert str(refused.value) == f"environment variable {name}: {why}"

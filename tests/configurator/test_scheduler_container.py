"""kube-scheduler's container: its flags, and where its files are."""

from __future__ import annotations

import msgspec
import pytest
import yaml

from configurator.errors import ConfiguratorError
from configurator.scheduler_container import Mounts, SchedulerFlags
from configurator.yaml_document import YamlDocument
from gas.objects.stored import DetailedPod

POD = {
    "spec": {
        "containers": [
            {
                "name": "s",
                "volumeMounts": [
                    {"name": "gas", "mountPath": "/etc/kubernetes"},
                    {"name": "deep", "mountPath": "/etc/kubernetes/deep/"},
                    {"name": "file", "mountPath": "/one.yaml", "subPath": "c.yaml"},
                    {"name": "map", "mountPath": "/map"},
                    {"name": "gone", "mountPath": "/gone"},
                    {"name": "scratch", "mountPath": "/etc/kubernetes/scratch"},
                    {"name": "gas", "mountPath": "/part", "subPath": "below"},
                    {"name": "gas", "mountPath": "/expression", "subPathExpr": "$(POD_NAME)"},
                ],
            }
        ],
        "volumes": [
            {"name": "gas", "hostPath": {"path": "/etc/kubernetes/gas"}},
            {"name": "deep", "hostPath": {"path": "/deep"}},
            {"name": "file", "configMap": {"name": "files"}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "map", "configMap": {"name": "maps", "items": [{"key": "k", "path": "p.yaml"}]}},
        ],
    }
}


@pytest.mark.parametrize(
    ("path", "host", "config_map"),
    [
        ("/etc/kubernetes/a.yaml", "/etc/kubernetes/gas/a.yaml", None),
        ("/etc/kubernetes/deep/a", "/deep/a", None),
        ("/etc/kubernetes/deep/../a", "/etc/kubernetes/gas/a", None),
        ("/etc/kubernetes/scratch/a", None, None),
        ("/expression/a", None, None),
        ("/part/a", "/etc/kubernetes/gas/below/a", None),
        ("/etc/kubernetes-old/a", None, None),
        ("/etc/kubernetes", "/etc/kubernetes/gas", None),
        ("/one.yaml", None, ("files", "c.yaml")),
        ("/map/p.yaml", None, ("maps", "k")),
        ("/map/other", None, ("maps", "other")),
        ("/gone/a", None, None),
        ("/elsewhere", None, None),
        ("relative", None, None),
    ],
)
def test_a_path_in_the_container_is_found_in_the_innermost_mount(
    path: str, host: str | None, config_map: tuple[str, str] | None
) -> None:
    pod = msgspec.convert(POD, DetailedPod)
    (container,) = pod.spec.containers or ()
    mounts = Mounts.of(pod.spec.volumes or (), container.volume_mounts or ())
    assert mounts.host_path(path) == host
    assert mounts.config_map(path) == config_map


def test_flags_that_a_file_would_silence_are_carried_into_it() -> None:
    words = [
        "kube-scheduler",
        "--profiling=false",
        "--kube-api-qps",
        "100",
        "--kubeconfig=/k",
        "--v=2",
        "--leader-elect",
    ]
    flags = SchedulerFlags.read(words)
    assert flags.configuration() == {
        ("clientConnection", "kubeconfig"): "/k",
        ("clientConnection", "qps"): 100,
        ("enableProfiling",): False,
    }


@pytest.mark.parametrize(
    ("word", "path", "value"),
    [
        *(
            pytest.param(f"--profiling={text}", ("enableProfiling",), wanted, id=f"a switch: {text}")
            for wanted, texts in ((True, "1 t T true TRUE True"), (False, "0 f F false FALSE False"))
            for text in texts.split()
        ),
        pytest.param("--contention-profiling", ("enableContentionProfiling",), True, id="a switch alone"),
        pytest.param("--kube-api-qps=50.5", ("clientConnection", "qps"), 50.5, id="a number"),
        pytest.param("--kube-api-qps=1e2", ("clientConnection", "qps"), 100, id="a number with exponent"),
        pytest.param("--kube-api-qps=-1", ("clientConnection", "qps"), -1, id="a number below 0"),
        pytest.param("--kube-api-burst=0x64", ("clientConnection", "burst"), 100, id="a whole number"),
        pytest.param("--lock-object-name=123", ("leaderElection", "resourceName"), "123", id="text of digits"),
        pytest.param("--lock-object-name=true", ("leaderElection", "resourceName"), "true", id="text like a switch"),
    ],
)
def test_values_are_of_the_kind_that_a_configuration_has_there(word: str, path: tuple[str, ...], value: object) -> None:
    carried = SchedulerFlags.read(["kube-scheduler", word]).configuration()
    assert carried == {path: value}
    assert type(carried[path]) is type(value)
    document = YamlDocument("x", b"kind: x\n")
    document.set(path, carried[path])
    found = yaml.safe_load(document.content)
    for key in path:
        found = found[key]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "word",
    [
        "--profiling=yes",
        "--profiling=",
        "--kube-api-qps=fast",
        "--kube-api-qps=nan",
        "--kube-api-qps=1e-9",
        "--kube-api-qps=1_0",
        "--kube-api-burst=1.5",
        "--kube-api-burst=3000000000",
    ],
)
def test_value_that_kube_scheduler_could_not_read_is_refused(word: str) -> None:
    with pytest.raises(ConfiguratorError, match=f"kube-scheduler has {word}.*; expected "):
        SchedulerFlags.read(["kube-scheduler", word]).configuration()


def test_word_after_a_switch_is_not_its_value_and_after_another_flag_always() -> None:
    flags = SchedulerFlags.read(["kube-scheduler", "--profiling", "false", "--kube-api-qps", "-1", "--config", "--x"])
    assert flags.values == {"profiling": "true", "kube-api-qps": "-1", "config": "--x"}


def test_switch_without_a_value_hides_no_flag() -> None:
    flags = SchedulerFlags.read(["kube-scheduler", "--authentication-skip-lookup", "--config=/x", "--leader-elect"])
    assert flags.values == {"authentication-skip-lookup": "true", "config": "/x", "leader-elect": "true"}

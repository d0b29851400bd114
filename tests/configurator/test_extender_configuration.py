"""The files of deploy/extender-configuration and the Job: they say what the configurator says, and are its input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from configurator.flags import DEFAULT_TEMPLATE, parse_flags
from configurator.plan import BUILT_IN_TEMPLATE
from tests.configurator.control_plane_files import NEWEST, ControlPlaneFiles, kubeadm_manifest

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
FILES = DEPLOY / "extender-configuration"
CONFIGURATIONS = {
    "scheduler-extender-configmap.yaml": "scheduler-config.yaml",
    "tas+gas-extender-configmap.yaml": "scheduler-config-tas+gas.yaml",
}


def configuration(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((FILES / name).read_text())
    return read


def test_built_in_configuration_is_the_file() -> None:
    assert REPOSITORY / DEFAULT_TEMPLATE == FILES / "scheduler-config.yaml"
    assert BUILT_IN_TEMPLATE.read_text() == (FILES / "scheduler-config.yaml").read_text()


@pytest.mark.parametrize("name", CONFIGURATIONS.values())
@pytest.mark.parametrize("release", ["1.22", "1.24", NEWEST])
def test_file_needs_nothing_but_the_version(files: ControlPlaneFiles, release: str, name: str) -> None:
    files.write_manifest(kubeadm_manifest(release))
    files.run(f"-f={FILES / name}")
    written = (files.etc / name).read_text().splitlines()
    wanted = (FILES / name).read_text().splitlines()
    different = [line for line in written if line not in wanted]
    expected = [line for line in different if line.startswith(("apiVersion:", "healthzBindAddress:", "metricsBind"))]
    assert different == expected


def test_other_extender_stays_when_ours_is_added() -> None:
    ours = configuration("scheduler-config.yaml")["extenders"]
    assert configuration("scheduler-config-tas+gas.yaml")["extenders"][1:] == ours


@pytest.mark.parametrize(("map_name", "name"), CONFIGURATIONS.items())
def test_config_map_holds_the_file_and_the_same_as_a_policy(map_name: str, name: str) -> None:
    config_map = configuration(map_name)
    assert (config_map["metadata"]["name"], config_map["metadata"]["namespace"]) == (
        "scheduler-extender-policy",
        "kube-system",
    )
    assert config_map["data"]["scheduler-config.yaml"] == (FILES / name).read_text()
    policy = json.loads(config_map["data"]["policy.cfg"])
    assert (policy["kind"], policy["apiVersion"]) == ("Policy", "v1")
    renamed = [
        {"enableHTTPS" if key == "enableHttps" else key: value for key, value in entry.items()}
        for entry in policy["extenders"]
    ]
    assert renamed == configuration(name)["extenders"]


def test_job_runs_the_configurator_with_flags_that_it_has() -> None:
    job = yaml.safe_load((DEPLOY / "configurator/job.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["gas-configurator"]
    flags = parse_flags(container["args"])
    assert flags.apply_secret
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    hosts = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    assert {path: hosts[name] for path, name in mounted.items() if name in hosts} == {
        "/etc/kubernetes": "/etc/kubernetes",
        "/etc/certs": "/etc/certs",
    }
    assert job["spec"]["backoffLimit"] == 0

"""The files of deploy/extender-configuration and the Job: they say what the configurator says, and are its input."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from configurator.flags import DEFAULT_TEMPLATE, parse_flags
from tests.configurator.control_plane_files import ControlPlaneFiles

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
FILES = DEPLOY / "extender-configuration"
CONFIGURATIONS = ("scheduler-config.yaml", "scheduler-config-tas+gas.yaml")


def test_built_in_configuration_is_the_file() -> None:
    assert REPOSITORY / DEFAULT_TEMPLATE == FILES / "scheduler-config.yaml"


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_file_is_used_as_it_is(files: ControlPlaneFiles, name: str) -> None:
    files.run(f"-f={FILES / name}")
    written = (files.etc / name).read_text().splitlines()
    ours = [line for line in written if line not in (FILES / name).read_text().splitlines()]
    assert ours == []


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

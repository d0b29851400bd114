"""kube-scheduler's manifest: those that kubeadm wrote, and those that are something else."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import pytest
import yaml

from configurator.errors import ConfiguratorError, NotAScheduler
from configurator.kubernetes_version import KubernetesVersion
from configurator.scheduler_manifest import SchedulerManifest
from configurator.static_pod import FINGERPRINT
from configurator.yaml_document import YamlDocument
from tests.configurator.control_plane_files import NEWEST, RELEASES, added, kubeadm_manifest

CONFIG = Path("/etc/kubernetes/scheduler-config.yaml")
CERTS = Path("/etc/certs")


def read(text: str, version: KubernetesVersion | None = None) -> SchedulerManifest:
    return SchedulerManifest.read(YamlDocument("kube-scheduler.yaml", text.encode()), version)


def wired(text: str, *, config: Path = CONFIG, certificates: Path = CERTS, fingerprint: str = "1") -> str:
    manifest = read(text)
    manifest.add_extender(configuration=config, certificates=certificates, fingerprint=fingerprint)
    return manifest.pod.document.content.decode()


def test_there_is_a_manifest_of_every_supported_release() -> None:
    assert tuple(f"1.{minor}" for minor in range(25, 38)) == RELEASES


# contract E15.4
@pytest.mark.parametrize("release", RELEASES)
def test_only_the_extenders_parts_are_added_to_what_kubeadm_wrote(release: str) -> None:
    text = kubeadm_manifest(release)
    assert str(read(text).version) == release
    assert added(text, wired(text)) == [
        "  annotations:\n",
        f'    {FINGERPRINT}: "1"\n',
        "    - --config=/etc/kubernetes/scheduler-config.yaml\n",
        "    - mountPath: /etc/kubernetes/scheduler-config.yaml\n",
        "      name: schedulerconfig\n",
        "      readOnly: true\n",
        "    - mountPath: /host/certs\n",
        "      name: certdir\n",
        "      readOnly: true\n",
        "  - hostPath:\n",
        "      path: /etc/kubernetes/scheduler-config.yaml\n",
        "      type: File\n",
        "    name: schedulerconfig\n",
        "  - hostPath:\n",
        "      path: /etc/certs\n",
        "      type: Directory\n",
        "    name: certdir\n",
        "  dnsPolicy: ClusterFirstWithHostNet\n",
    ]


# contract E15.5
@pytest.mark.parametrize("release", RELEASES)
def test_second_run_changes_nothing(release: str) -> None:
    once = wired(kubeadm_manifest(release))
    assert wired(once) == once


def test_another_fingerprint_is_all_that_changes_when_the_files_do() -> None:
    once = wired(kubeadm_manifest(NEWEST))
    again = wired(once, fingerprint="2")
    assert again == once.replace(f'{FINGERPRINT}: "1"', f'{FINGERPRINT}: "2"') != once


def test_other_directories_replace_the_earlier_ones() -> None:
    once = wired(kubeadm_manifest(NEWEST))
    again = wired(once, certificates=Path("/etc/kubernetes/certs"))
    assert again == once.replace("path: /etc/certs", "path: /etc/kubernetes/certs")


def test_changes_of_the_original_are_kept() -> None:
    original = """\
apiVersion: v1
kind: Pod
spec:
    containers:
        - command: [kube-scheduler, --leader-elect=true, --config=/etc/kubernetes/scheduler-config.yaml]
          image: registry.k8s.io/kube-scheduler:v1.28.1
          volumeMounts:
            - {mountPath: /etc/kubernetes/scheduler-config.yaml, name: schedulerconfig, readOnly: true}
            - {mountPath: /host/certs, name: certdir, readOnly: true}
    dnsPolicy: ClusterFirstWithHostNet
    hostNetwork: true
    volumes:
        - hostPath: {path: /etc/kubernetes/scheduler-config.yaml}
          name: schedulerconfig
        - hostPath: {path: /etc/certs/}
          name: certdir
metadata:
    name: kube-scheduler
"""
    after = [line.strip() for line in wired(original).splitlines()]  # of two ways to indent lists, one is left
    assert after == [*(line.strip() for line in original.splitlines()), "annotations:", f'{FINGERPRINT}: "1"']


def test_configuration_that_is_mounted_already_is_left_where_it_is() -> None:
    text = wired(kubeadm_manifest(NEWEST), config=Path("/opt/scheduler.yaml"))
    text = text.replace("--config=/opt/scheduler.yaml", "--config=/in/pod.yaml").replace(
        "mountPath: /opt/scheduler.yaml", "mountPath: /in/pod.yaml"
    )
    assert read(text).pod.on_host("/in/pod.yaml") == Path("/opt/scheduler.yaml")
    assert wired(text, config=Path("/opt/scheduler.yaml")) == text


def test_flag_and_value_as_two_words() -> None:
    text = kubeadm_manifest(NEWEST).replace("    - --leader-elect=true\n", "    - --config\n    - /old.yaml\n")
    after = wired(text)
    assert "    - --config=/etc/kubernetes/scheduler-config.yaml\n    image" in after
    assert "/old.yaml" not in after


KUBEADM = kubeadm_manifest(NEWEST)
IMAGE = re.compile(r"kube-scheduler:v1[0-9.]+")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(KUBEADM.replace("kind: Pod", "kind: Deployment"), "holds a 'Deployment'", id="not a pod"),
        pytest.param(
            KUBEADM.replace("- kube-scheduler\n", "- kube-apiserver\n").replace("kube-scheduler:v", "kube-apiserver:v"),
            "has 0 containers that run kube-scheduler",
            id="another component",
        ),
        pytest.param(
            KUBEADM.replace("- kube-scheduler\n", "- /usr/bin/volcano-scheduler\n"),
            "has 0 containers that run kube-scheduler",
            id="another scheduler",
        ),
        pytest.param(
            KUBEADM.replace("    - kube-scheduler\n", "    - sh\n    - -c\n    - kube-scheduler --v=2\n"),
            "starts kube-scheduler through another program",
            id="through a shell",
        ),
        pytest.param(
            KUBEADM.partition("  containers:")[0], "has 0 containers that run kube-scheduler", id="cut after spec"
        ),
        pytest.param(KUBEADM.partition("    image:")[0], "names no image", id="cut after the flags"),
        pytest.param(KUBEADM.partition("  volumes:")[0], "which is not among its volumes", id="cut before the volumes"),
        pytest.param(
            KUBEADM.replace("- kube-scheduler\n", "- kube-scheduler\n    - 5\n"),
            "`$.spec.containers[0].command[1]`",
            id="a number",
        ),
        pytest.param(
            KUBEADM.replace("    image:", "    args: [5]\n    image:"),
            "`$.spec.containers[0].args[0]`",
            id="a number in args",
        ),
        pytest.param(KUBEADM.replace("  hostNetwork: true\n", ""), "hostNetwork: true", id="not in the host's network"),
        pytest.param(
            KUBEADM.replace("mountPath: /etc/kubernetes/scheduler.conf", "mountPath: /etc/kubernetes/sched"),
            "has --kubeconfig=/etc/kubernetes/scheduler.conf, which it does not mount",
            id="a kubeconfig that is not there",
        ),
        pytest.param(
            KUBEADM.replace("    name: kubeconfig\nstatus", "    name: [kubeconfig]\nstatus"),
            "Expected `str`, got `array` - at `$.spec.volumes[0].name`",
            id="a list as a volume's name",
        ),
        pytest.param(
            KUBEADM.replace("      name: kubeconfig\n", "      name: {a: b}\n"),
            "Expected `str`, got `object` - at `$.spec.containers[0].volumeMounts[0].name`",
            id="a mapping as a mount's name",
        ),
    ],
)
def test_manifest_of_another_program_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(NotAScheduler) as refused:
        wired(text)
    assert sentence in str(refused.value)
    assert "expected the static pod manifest of a kube-scheduler, named with -m" in str(refused.value)


@pytest.mark.parametrize("text", [KUBEADM, wired(KUBEADM)], ids=["kubeadm's", "ours"])
def test_manifest_that_is_cut_off_is_accepted_only_if_the_pod_is_complete(text: str) -> None:
    whole = yaml.safe_load(text)["spec"]
    taken = []
    for length in {*range(0, len(text), 37), *range(len(text) - 40, len(text) + 1)}:
        with contextlib.suppress(ConfiguratorError):
            read(text[:length])
            taken.append(length)
    assert len(text) in taken
    for length in taken:
        found = yaml.safe_load(text[:length])["spec"]
        # The last line is ours: it is put there again.
        assert {**found, "dnsPolicy": ""} == {**whole, "dnsPolicy": ""}, text[:length][-40:]


@pytest.mark.parametrize(
    ("command", "args", "after"),
    [
        pytest.param(
            ["kube-scheduler", "--config=/mine.yaml", "--profiling=false"],
            ["--v=2"],
            (["kube-scheduler", f"--config={CONFIG}", "--profiling=false"], ["--v=2"]),
            id="--config in command",
        ),
        pytest.param(
            ["kube-scheduler", "--profiling=false"],
            ["--config", "/mine.yaml"],
            (["kube-scheduler", "--profiling=false"], [f"--config={CONFIG}"]),
            id="--config in args",
        ),
        pytest.param(
            ["kube-scheduler", "--profiling=false", "--config"],
            ["/mine.yaml"],
            (["kube-scheduler", "--profiling=false", f"--config={CONFIG}"], []),
            id="--config in both",
        ),
        pytest.param(
            ["kube-scheduler", "--config=/a.yaml", "--config", "/b.yaml", "--profiling=false"],
            ["--config=/mine.yaml", "--v=2"],
            (["kube-scheduler", f"--config={CONFIG}", "--profiling=false"], ["--v=2"]),
            id="--config three times",
        ),
        pytest.param(
            ["kube-scheduler", "--profiling=false"],
            ["--v=2"],
            (["kube-scheduler", "--profiling=false"], ["--v=2", f"--config={CONFIG}"]),
            id="no --config",
        ),
    ],
)
def test_command_and_args_are_one_command_line(
    command: list[str], args: list[str], after: tuple[list[str], list[str]]
) -> None:
    pod = yaml.safe_load(KUBEADM)
    pod["spec"]["containers"][0].update(command=command, args=args)
    found = read(json.dumps(pod))
    assert found.pod.flags.configuration()["enableProfiling",] is False
    assert found.pod.flags.values.get("config") == ("/mine.yaml" if "mine" in str([command, args]) else None)
    once = wired(json.dumps(pod))
    container = json.loads(once)["spec"]["containers"][0]
    assert (container["command"], container["args"]) == after
    assert wired(once) == once


def test_names_and_paths_in_use_are_refused() -> None:
    other = KUBEADM.replace(
        "    - mountPath: ", "    - mountPath: /host/certs\n      name: kubeconfig\n    - mountPath: ", 1
    )
    with pytest.raises(ConfiguratorError, match="mounts 'kubeconfig' at /host/certs, where"):
        wired(other)
    named = KUBEADM.replace("name: kubeconfig", "name: certdir")
    with pytest.raises(ConfiguratorError, match="uses the volume name 'certdir' for something else"):
        wired(named)


@pytest.mark.parametrize(
    ("image", "release"),
    [
        pytest.param("registry.k8s.io/kube-scheduler:v1.34.4", "1.34", id="kubeadm's"),
        pytest.param("localhost:5000/mirror/kube-scheduler:v1.25.16", "1.25", id="a registry with a port"),
        pytest.param("x/kube-scheduler:v1.29.15@sha256:" + "0" * 64, "1.29", id="tag and digest"),
        pytest.param("x/hardened-kubernetes:v1.30.2-rke2r1-build2024", "1.30", id="a distribution's tag"),
        pytest.param("x/kube-scheduler:v1.25.0-alpha.1.5_abc", "1.25", id="a build"),
        pytest.param("x/kube-scheduler-arm64:1.37.0", "1.37", id="later than any that is known: as the newest"),
    ],
)
def test_release_is_read_from_the_image(image: str, release: str) -> None:
    assert str(KubernetesVersion.of_image(image, name="x")) == release


@pytest.mark.parametrize(
    "image",
    [
        "kube-scheduler",
        "kube-scheduler:latest",
        "x/kube-scheduler@sha256:" + "0" * 64,
        "x:v2.1.0",
        "reg:5000/a",
        "x:v1.34",
    ],
)
def test_image_without_a_release_is_refused(image: str) -> None:
    with pytest.raises(ConfiguratorError, match="name it with --kubernetes-version"):
        KubernetesVersion.of_image(image, name="x")


def test_release_before_the_oldest_is_refused() -> None:
    with pytest.raises(
        ConfiguratorError, match=r"is of Kubernetes 1\.24; the configurator supports 1\.25 and later, which"
    ):
        read(IMAGE.sub("kube-scheduler:v1.24.17", KUBEADM))


def test_release_may_be_named() -> None:
    assert read(IMAGE.sub("kube-scheduler:mine", KUBEADM), KubernetesVersion(30)).version == KubernetesVersion(30)


def test_user_of_a_rootless_control_plane_is_seen() -> None:
    text = KUBEADM.replace(
        "    name: kube-scheduler\n    ",
        "    securityContext: {runAsUser: 994, runAsGroup: 992}\n    name: kube-scheduler\n    ",
    )
    assert read(text).pod.owner == (994, 992)
    assert read(KUBEADM).pod.owner is None

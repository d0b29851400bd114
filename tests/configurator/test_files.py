"""Files that a kube-scheduler without root can read."""

from __future__ import annotations

import os

import pytest

from tests.configurator.control_plane_files import NEWEST, ControlPlaneFiles, kubeadm_manifest

USER = 65534 if os.geteuid() == 0 else os.geteuid() + 1


def rootless(files: ControlPlaneFiles, user: int = USER, group: int = USER) -> None:
    context = f"    securityContext: {{runAsUser: {user}, runAsGroup: {group}}}\n"
    files.write_manifest(kubeadm_manifest(NEWEST).replace("    imagePullPolicy", context + "    imagePullPolicy"))


def test_directory_that_it_cannot_enter_is_named_with_the_command(files: ControlPlaneFiles) -> None:
    rootless(files)
    files.certificates.mkdir(mode=0o700)
    said = files.run("-dry-run")
    assert (
        f"note: kube-scheduler runs as user {USER} and cannot read {files.certificates}, whose mode is 0700: "
        f"chmod o+x {files.certificates}" in said
    )


@pytest.mark.parametrize(
    ("mode", "user", "group"),
    [(0o711, USER, USER), (0o710, USER, os.getegid()), (0o700, os.geteuid() or USER, USER)],
    ids=["open to all", "open to its group", "another user"],
)
def test_directory_is_judged_as_the_kernel_does(files: ControlPlaneFiles, mode: int, user: int, group: int) -> None:
    rootless(files, user, group)
    files.certificates.mkdir()
    files.certificates.chmod(mode)
    assert ("cannot read" in files.run("-dry-run")) == (mode == 0o700 and user != os.geteuid())


def test_permission_of_others_does_not_count_for_a_group_without_it(files: ControlPlaneFiles) -> None:
    rootless(files, USER, os.getegid())
    files.certificates.mkdir()
    files.certificates.chmod(0o701)
    assert "whose mode is 0701" in files.run("-dry-run")


def test_configuration_that_it_cannot_read_is_named(files: ControlPlaneFiles) -> None:
    rootless(files)
    files.configuration.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    files.configuration.chmod(0o600)
    assert f"cannot read {files.configuration}, whose mode is 0600: chmod o+r" in files.run("-dry-run")


def test_root_reads_everything(files: ControlPlaneFiles) -> None:
    files.certificates.mkdir(mode=0o700)
    assert "cannot read" not in files.run("-dry-run")

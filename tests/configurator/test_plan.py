"""Plans for a machine that is not as kubeadm left it: other configurations, authorities, templates."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from configurator.certificates import mint_authority, mint_client, mint_server
from configurator.errors import BadCertificate, ConfiguratorError, FileTrouble
from configurator.flags import DEFAULT_TEMPLATE
from configurator.plan import BUILT_IN_TEMPLATE
from tests.configurator.control_plane_files import (
    NEWEST,
    NOW,
    SERVICE,
    ControlPlaneFiles,
    configuration,
    kubeadm_manifest,
    use_configuration,
    with_words,
    write_pair,
)

UNUSED = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
"""


class TestFlagsThatAConfigurationSilences:
    def test_are_added_to_an_unused_configuration_that_is_taken_into_use(self, files: ControlPlaneFiles) -> None:
        files.configuration.write_text(UNUSED)
        files.write_manifest(with_words("--profiling=False", "--kube-api-qps=50.5"))
        files.run()
        found = configuration(files)
        assert found.get("clientConnection") == {"kubeconfig": "/etc/kubernetes/scheduler.conf", "qps": 50.5}
        assert found.get("enableProfiling") is False
        assert found.get("profiles") == [{"schedulerName": "default-scheduler"}]
        assert files.run() == "nothing to change"

    def test_are_in_a_new_configuration_also_if_they_appear_after_a_run(self, files: ControlPlaneFiles) -> None:
        files.write_manifest(with_words("--profiling=false"))
        files.run()
        assert configuration(files).get("enableProfiling") is False
        files.write_manifest(with_words("--kube-api-burst=9", text=files.manifest.read_text()))
        files.run()
        assert configuration(files).get("clientConnection", "burst") == 9
        assert files.run() == "nothing to change"

    @pytest.mark.parametrize("moved", [False, True], ids=["in its place", "to where -d says"])
    def test_of_a_configuration_of_the_administrators_stay_silent_while_it_stays(
        self, files: ControlPlaneFiles, moved: bool
    ) -> None:
        mine = files.etc / "mine/scheduler.yaml"
        use_configuration(files, mine, "--profiling=false", text=UNUSED)
        flags = [f"-cert-dir={files.certificates}", *([f"-d={files.etc}"] if moved else [])]
        files.run(*flags, places=False)
        outcome = files.configuration if moved else mine
        assert ("enableProfiling: false" in outcome.read_text()) is moved
        assert files.run(*flags, places=False) == "nothing to change"


class TestAuthorityOfAnEarlierRun:
    @pytest.mark.parametrize(
        ("names", "sentence"),
        [
            pytest.param(
                {"cert": "ca.crt", "key": "ca.key"}, r"ca\.crt belongs to 'company'.*give the same flags", id="signs"
            ),
            pytest.param(
                {"serving-cert": "server.crt", "serving-key": "server.key", "serving-ca": "ca.crt"},
                r"belongs to 'company'.*--serving-cert",
                id="given with the serving certificate",
            ),
            pytest.param(
                {"cert": "client.crt", "key": "client.key", "client-ca": "ca.crt"},
                r"client\.crt is a certificate for 'kube-scheduler' that .*give the same flags",
                id="given with the client certificate",
            ),
        ],
    )
    def test_is_not_dropped_by_a_run_that_names_none(
        self, files: ControlPlaneFiles, tmp_path: Path, names: dict[str, str], sentence: str
    ) -> None:
        authority = mint_authority(NOW, name="company")
        write_pair(tmp_path / "given", "ca", authority)
        write_pair(tmp_path / "given", "server", mint_server(authority, [SERVICE], NOW))
        write_pair(tmp_path / "given", "client", mint_client(authority, NOW))
        named = [f"--{flag}={tmp_path}/given/{name}" for flag, name in names.items()]
        files.run(*named)
        before = files.state()
        with pytest.raises(ConfiguratorError, match=sentence):
            files.run()
        assert files.state() == before
        assert files.run(*named) == "nothing to change"

    def test_is_replaced_once_its_files_are_moved_away(self, files: ControlPlaneFiles) -> None:
        certificate, key = write_pair(files.etc / "pki", "ca", mint_authority(NOW, name="kubernetes"))
        files.run(f"-cert={certificate}", f"-key={key}")
        for name in ("ca.crt", "client.crt"):
            (files.certificates / name).rename(files.root / name)
        files.run()
        assert (files.certificates / "ca.crt").read_bytes() == (files.own / "ca.crt").read_bytes()

    def test_gives_way_to_one_that_is_named_also_to_another_of_the_same_name(self, files: ControlPlaneFiles) -> None:
        files.run()
        for _ in range(2):
            certificate, key = write_pair(files.etc / "pki", "ca", mint_authority(NOW, name="kubernetes"))
            files.run(f"-cert={certificate}", f"-key={key}")
            assert (files.certificates / "ca.crt").read_bytes() == certificate.read_bytes()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x08", id="version 9"),
        pytest.param(b"\x06\x03\x55\x1d\x0e", b"\x06\x03\x55\x1d\x13", id="an extension twice"),
    ],
)
@pytest.mark.parametrize("name", ["ca.crt", "client.crt"])
def test_certificate_that_no_program_would_accept_is_refused(
    files: ControlPlaneFiles, name: str, before: bytes, after: bytes
) -> None:
    der = mint_authority(NOW).certificate.public_bytes(serialization.Encoding.DER)
    assert der.count(before) == 1
    files.certificates.mkdir()
    (files.certificates / name).write_bytes(ssl.DER_cert_to_PEM_cert(der.replace(before, after)).encode())
    with pytest.raises(BadCertificate, match="holds no PEM certificate that can be read"):
        files.run("-dry-run")


class TestDefaultTemplate:
    @pytest.fixture
    def template(self, files: ControlPlaneFiles) -> Path:
        path = Path.cwd() / DEFAULT_TEMPLATE
        path.parent.mkdir(parents=True)
        path.write_text(BUILT_IN_TEMPLATE.read_text() + "# of the working directory\n")
        return path

    def test_of_the_working_directory_is_named(self, files: ControlPlaneFiles, template: Path) -> None:
        sentence = f"note: without -f the template is {template} in the working directory"
        assert sentence in files.run("-dry-run")
        assert sentence in files.run()
        assert files.run() == "nothing to change"

    @pytest.mark.parametrize("up", [0, 1, 2], ids=["the file", "its directory", "the one above"])
    def test_that_others_can_write_is_refused(
        self, files: ControlPlaneFiles, template: Path, up: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = (template, *template.parents)[up]
        mode, lstat = place.stat().st_mode, Path.lstat
        place.chmod(mode | 0o002)
        with pytest.raises(FileTrouble, match="can be written by every user, so it is not used"):
            files.run("-dry-run")
        assert "would be changed" in files.run("-dry-run", f"-f={template}")
        place.chmod(mode)

        def of_another_user(path: Path) -> os.stat_result:
            found = lstat(path)
            return os.stat_result((*found[:4], 4711, *found[5:])) if path == place else found

        monkeypatch.setattr(Path, "lstat", of_another_user)
        monkeypatch.delenv("SUDO_UID", raising=False)
        with pytest.raises(FileTrouble, match="belongs to user 4711, so it is not used as the default template"):
            files.run("-dry-run")
        monkeypatch.setenv("SUDO_UID", "4711")
        assert "would be changed" in files.run("-dry-run")


class TestUnknownRelease:
    def text(self, release: str) -> str:
        return kubeadm_manifest(NEWEST).replace(f"kube-scheduler:v{NEWEST}.", f"kube-scheduler:v{release}.")

    def test_is_noted_when_it_is_near(self, files: ControlPlaneFiles) -> None:
        files.write_manifest(self.text("1.38"))
        assert "note: Kubernetes 1.38 is later than 1.37, the newest known release" in files.run()
        assert configuration(files).get("apiVersion") == "kubescheduler.config.k8s.io/v1"
        assert files.run() == "nothing to change"

    def test_that_is_far_has_to_be_confirmed(self, files: ControlPlaneFiles) -> None:
        files.write_manifest(self.text("1.99"))
        with pytest.raises(ConfiguratorError, match=r"confirm it with --kubernetes-version=1\.99"):
            files.run()
        files.run("--kubernetes-version=1.99")
        assert files.run("--kubernetes-version=1.99") == "nothing to change"

"""Plans for a machine that is not as kubeadm left it: other configurations, authorities, templates."""

from __future__ import annotations

import os
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from configurator.certificates import Pair, mint_client, mint_server
from configurator.errors import BadCertificate, ConfiguratorError, FileTrouble
from configurator.flags import DEFAULT_TEMPLATE
from configurator.plan import BUILT_IN_TEMPLATE
from configurator.yaml_document import YamlDocument
from tests.configurator.control_plane_files import NEWEST, NOW, ControlPlaneFiles, kubeadm_manifest
from tests.configurator.test_certificate_plan import SERVICE, write_pair

UNUSED = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
"""


def with_words(*words: str, text: str | None = None) -> str:
    """kubeadm's manifest, or another, with further flags."""
    lines = "".join(f"    - {word}\n" for word in words)
    return (text or kubeadm_manifest(NEWEST)).replace("    image:", f"{lines}    image:", 1)


def configuration(files: ControlPlaneFiles) -> YamlDocument:
    return YamlDocument("configuration", files.configuration.read_bytes())


def company_authority(name: str = "kubernetes") -> Pair:
    """Make an authority that is not ours."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name.from_rfc4514_string(f"CN={name}")
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00"), critical=False)
        .add_extension(x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.5"), b"\x05\x00"), critical=False)
        .sign(key, hashes.SHA256())
    )
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(certificate, key, certificate.public_bytes(serialization.Encoding.PEM), text)


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

    def test_that_appear_after_a_run_are_added_by_the_next(self, files: ControlPlaneFiles) -> None:
        files.run()
        files.write_manifest(with_words("--profiling=false", text=files.manifest.read_text()))
        files.run()
        assert configuration(files).get("enableProfiling") is False
        assert files.run() == "nothing to change"

    @pytest.mark.parametrize("moved", [False, True], ids=["in its place", "to where -d says"])
    def test_of_a_configuration_of_the_administrators_stay_silent_while_it_stays(
        self, files: ControlPlaneFiles, moved: bool
    ) -> None:
        mine = files.etc / "mine/scheduler.yaml"
        mine.parent.mkdir()
        mine.write_text(UNUSED)
        text = with_words(f"--config={mine}", "--profiling=false")
        text = text.replace("    volumeMounts:\n", f"    volumeMounts:\n    - mountPath: {mine}\n      name: mine\n")
        files.write_manifest(
            text.replace("  volumes:\n", f"  volumes:\n  - hostPath:\n      path: {mine}\n    name: mine\n")
        )
        flags = [f"-cert-dir={files.certificates}", *([f"-d={files.etc}"] if moved else [])]
        files.run(*flags, places=False)
        outcome = files.configuration if moved else mine
        assert ("enableProfiling: false" in outcome.read_text()) is moved
        assert files.run(*flags, places=False) == "nothing to change"

    def test_that_kube_scheduler_could_not_read_stop_the_run(self, files: ControlPlaneFiles) -> None:
        files.write_manifest(with_words("--kube-api-qps=fast"))
        before = files.state()
        with pytest.raises(ConfiguratorError, match=r"--kube-api-qps=fast.*expected a number such as 50"):
            files.run()
        assert files.state() == before


class TestAuthorityOfAnEarlierRun:
    def test_that_signs_is_not_dropped_by_a_run_that_names_none(self, files: ControlPlaneFiles) -> None:
        certificate, key = write_pair(files.etc / "pki", "ca", company_authority())
        named = [f"-cert={certificate}", f"-key={key}"]
        files.run(*named)
        before = files.state()
        with pytest.raises(ConfiguratorError, match=r"ca\.crt belongs to 'kubernetes'.*give the same flags as before"):
            files.run()
        assert files.state() == before
        assert files.run(*named) == "nothing to change"

    def test_that_was_given_with_the_serving_certificate_is_not_dropped(
        self, files: ControlPlaneFiles, tmp_path: Path
    ) -> None:
        authority = company_authority("company")
        ca, _ = write_pair(tmp_path / "given", "ca", authority)
        server, key = write_pair(tmp_path / "given", "server", mint_server(authority, [SERVICE], NOW))
        named = [f"--serving-cert={server}", f"--serving-key={key}", f"--serving-ca={ca}"]
        files.run(*named)
        before = files.state()
        with pytest.raises(ConfiguratorError, match=r"belongs to 'company'.*--serving-cert"):
            files.run()
        assert files.state() == before
        assert files.run(*named) == "nothing to change"

    def test_that_was_given_with_the_client_certificate_is_not_dropped(
        self, files: ControlPlaneFiles, tmp_path: Path
    ) -> None:
        authority = company_authority("company")
        ca, _ = write_pair(tmp_path / "given", "ca", authority)
        client, key = write_pair(tmp_path / "given", "client", mint_client(authority, NOW))
        named = [f"-cert={client}", f"-key={key}", f"--client-ca={ca}"]
        files.run(*named)
        before = files.state()
        with pytest.raises(
            ConfiguratorError, match=r"client\.crt is a certificate for 'kube-scheduler' that .*give the same flags"
        ):
            files.run()
        assert files.state() == before
        assert files.run(*named) == "nothing to change"

    def test_is_replaced_once_its_files_are_moved_away(self, files: ControlPlaneFiles) -> None:
        certificate, key = write_pair(files.etc / "pki", "ca", company_authority())
        files.run(f"-cert={certificate}", f"-key={key}")
        for name in ("ca.crt", "client.crt"):
            (files.certificates / name).rename(files.root / name)
        files.run()
        assert (files.certificates / "ca.crt").read_bytes() == (files.own / "ca.crt").read_bytes()

    def test_of_its_own_gives_way_to_one_that_is_named(self, files: ControlPlaneFiles) -> None:
        files.run()
        certificate, key = write_pair(files.etc / "pki", "ca", company_authority())
        files.run(f"-cert={certificate}", f"-key={key}")
        assert (files.certificates / "ca.crt").read_bytes() == certificate.read_bytes()

    def test_of_the_cluster_that_was_replaced_by_another_of_its_name_signs_anew(self, files: ControlPlaneFiles) -> None:
        for _ in range(2):
            certificate, key = write_pair(files.etc / "pki", "ca", company_authority())
            files.run(f"-cert={certificate}", f"-key={key}")
            assert (files.certificates / "ca.crt").read_bytes() == certificate.read_bytes()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x08", id="version 9"),
        pytest.param(b"\x06\x03\x2a\x03\x05", b"\x06\x03\x2a\x03\x04", id="an extension twice"),
    ],
)
@pytest.mark.parametrize("name", ["ca.crt", "client.crt"])
def test_certificate_that_no_program_would_accept_is_refused(
    files: ControlPlaneFiles, name: str, before: bytes, after: bytes
) -> None:
    der = company_authority().certificate.public_bytes(serialization.Encoding.DER)
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
    def test_that_every_user_can_write_is_refused(self, files: ControlPlaneFiles, template: Path, up: int) -> None:
        place = (template, *template.parents)[up]
        place.chmod(place.stat().st_mode | 0o002)
        with pytest.raises(FileTrouble, match="can be written by every user, so it is not used"):
            files.run("-dry-run")
        assert "would be changed" in files.run("-dry-run", f"-f={template}")

    @pytest.mark.parametrize("up", [0, 1, 2], ids=["the file", "its directory", "the one above"])
    def test_of_another_user_is_refused(
        self, files: ControlPlaneFiles, template: Path, up: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = (template, *template.parents)[up]
        lstat = Path.lstat

        def of_somebody_else(path: Path) -> os.stat_result:
            found = lstat(path)
            return os.stat_result((*found[:4], 4711, *found[5:])) if path == place else found

        monkeypatch.setattr(Path, "lstat", of_somebody_else)
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

    def test_is_refused_when_it_is_far_unless_it_is_confirmed(self, files: ControlPlaneFiles) -> None:
        files.write_manifest(self.text("1.99"))
        before = files.state()
        with pytest.raises(ConfiguratorError, match=r"confirm it with --kubernetes-version=1\.99"):
            files.run()
        assert files.state() == before
        files.run("--kubernetes-version=1.99")
        assert files.run("--kubernetes-version=1.99") == "nothing to change"

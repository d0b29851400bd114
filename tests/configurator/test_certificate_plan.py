"""Certificates: what is signed, what is kept, what is refused. OpenSSL judges the signatures, in handshakes."""

from __future__ import annotations

import base64
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from configurator.certificate_plan import serving_names
from configurator.certificates import Pair, is_signed_by, mint_authority, mint_client, mint_server
from configurator.errors import BadCertificate, ConfiguratorError
from configurator.yaml_document import YamlDocument
from sandbox.programs import write_kubeconfig
from tests.configurator.control_plane_files import (
    NOW,
    ORIGINAL_WITH_ANOTHER,
    SERVICE,
    ControlPlaneFiles,
    load,
    write_pair,
)

DAY = timedelta(days=1)
OTHER_KEY = mint_authority(NOW).key_text


def client_of(files: ControlPlaneFiles) -> Pair:
    return load(files.certificates / "client.crt", files.certificates / "client.key")


def serving_of(files: ControlPlaneFiles) -> Pair:
    return load(files.own / "server.crt", files.own / "server.key")


def secret_of(files: ControlPlaneFiles) -> dict[str, Any]:
    manifest = YamlDocument("secret", (files.own / "extender-secret.yaml").read_bytes()).get()
    return {**manifest, "data": {name: base64.b64decode(text) for name, text in manifest["data"].items()}}


def handshake(server: tuple[bytes, bytes, bytes], client: tuple[bytes, bytes, bytes], host: str, at: Path) -> None:
    """Each is its certificate, key and authority. Raises ssl.SSLError when one does not believe the other."""
    contexts = []
    for name, (certificate, key, authority), side in (
        ("server", server, ssl.PROTOCOL_TLS_SERVER),
        ("client", client, ssl.PROTOCOL_TLS_CLIENT),
    ):
        context = ssl.SSLContext(side)
        (at / f"{name}.pem").write_bytes(certificate + key)
        context.load_cert_chain(at / f"{name}.pem")
        context.load_verify_locations(cadata=authority.decode())
        context.verify_mode = ssl.CERT_REQUIRED
        contexts.append(context)
    buffers = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = contexts[0].wrap_bio(*buffers, server_side=True)
    other = contexts[1].wrap_bio(buffers[1], buffers[0], server_hostname=host)
    done: set[str] = set()
    for _ in range(20):
        for name, side_object in (("client", other), ("server", one)):
            if name not in done:
                try:
                    side_object.do_handshake()
                    done.add(name)
                except ssl.SSLWantReadError:
                    pass
    assert done == {"client", "server"}


def meet(files: ControlPlaneFiles, tmp_path: Path, host: str = SERVICE) -> None:
    data = secret_of(files)["data"]
    shown = (files.certificates / "client.crt").read_bytes(), (files.certificates / "client.key").read_bytes()
    believed = (files.certificates / "ca.crt").read_bytes()
    handshake((data["tls.crt"], data["tls.key"], data["ca.crt"]), (*shown, believed), host, tmp_path)


def run_today(files: ControlPlaneFiles, *more: str) -> str:
    """Certificates that OpenSSL judges have to be valid today."""
    return files.run(*more, now=datetime.now(UTC))


@pytest.mark.parametrize("host", [SERVICE, "gas-service.default.svc", "gas-service", "localhost", "127.0.0.1"])
def test_scheduler_and_extender_trust_each_other(files: ControlPlaneFiles, tmp_path: Path, host: str) -> None:
    run_today(files)
    meet(files, tmp_path, host)


def test_secret_has_the_files_that_the_extender_mounts(files: ControlPlaneFiles) -> None:
    files.run("--secret=gpu/other")
    secret = secret_of(files)
    assert (secret["kind"], secret["apiVersion"], secret["type"]) == ("Secret", "v1", "kubernetes.io/tls")
    assert secret["metadata"] == {"name": "other", "namespace": "gpu"}
    assert set(secret["data"]) == {"tls.crt", "tls.key", "ca.crt"}


def test_name_of_the_secret_is_kept(files: ControlPlaneFiles) -> None:
    files.run("--secret=gpu/other")
    assert files.run() == "nothing to change"
    files.run("--san=more.example")
    assert secret_of(files)["metadata"] == {"name": "other", "namespace": "gpu"}
    files.run("--secret=default/extender-secret")
    assert secret_of(files)["metadata"] == {"name": "extender-secret", "namespace": "default"}
    files.run("--undo")
    kubeconfig = write_kubeconfig(files.root / "admin.conf", "https://127.0.0.1:1", token="t")
    with pytest.raises(ConfiguratorError, match="the Secret gpu/other could not be applied to the cluster"):
        files.run("--apply-secret", f"--kubeconfig={kubeconfig}")
    assert "kubectl delete secret --namespace=gpu other deletes it" in files.run("--undo")


def test_secret_whose_name_looks_like_a_number_is_text(files: ControlPlaneFiles) -> None:
    files.run("--secret=2026/1e3")
    assert yaml.safe_load((files.own / "extender-secret.yaml").read_text())["metadata"] == {
        "name": "1e3",
        "namespace": "2026",
    }
    assert files.run() == "nothing to change"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}\n",
        'metadata:\n  name: "Not/One"\n  namespace: "gpu"\n',
        'metadata:\n  name: "\xff"\n  namespace: "gpu"\n',
    ],
)
def test_manifest_of_the_secret_without_a_name_is_written_again(files: ControlPlaneFiles, text: str) -> None:
    files.own.mkdir(parents=True)
    (files.own / "extender-secret.yaml").write_bytes(text.encode("latin-1"))
    files.run()
    assert secret_of(files)["metadata"] == {"name": "extender-secret", "namespace": "default"}


def test_extender_does_not_trust_the_clusters_authority(files: ControlPlaneFiles, tmp_path: Path) -> None:
    run_today(files)
    cluster = mint_authority(datetime.now(UTC))
    kubelet = mint_client(cluster, datetime.now(UTC))
    data = secret_of(files)["data"]
    with pytest.raises(ssl.SSLError):
        handshake(
            (data["tls.crt"], data["tls.key"], data["ca.crt"]),
            (kubelet.chain, kubelet.key_text, (files.certificates / "ca.crt").read_bytes()),
            SERVICE,
            tmp_path,
        )


def test_private_keys_are_readable_by_root_only(files: ControlPlaneFiles) -> None:
    files.run()
    secret = {
        path.name for path in (*files.certificates.iterdir(), *files.own.iterdir()) if b"PRIVATE" in path.read_bytes()
    }
    assert secret == {"client.key", "ca.key", "server.key"}
    for path in (files.certificates / "client.key", files.own / "ca.key", files.own / "extender-secret.yaml"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_authoritys_key_is_outside_the_schedulers_directory(files: ControlPlaneFiles) -> None:
    files.run()
    assert sorted(path.name for path in files.certificates.iterdir()) == ["ca.crt", "client.crt", "client.key"]


# contract E15.5
def test_second_run_signs_nothing(files: ControlPlaneFiles) -> None:
    files.run()
    before = files.state()
    assert files.run(now=NOW + 200 * DAY) == "nothing to change"
    assert files.state() == before


def test_run_near_the_end_replaces_certificates_and_restarts_the_scheduler(files: ControlPlaneFiles) -> None:
    files.run()
    before, authority = files.state(), (files.own / "ca.crt").read_bytes()
    said = files.run(now=NOW + 300 * DAY)
    assert "a client certificate for kube-scheduler, valid until 2028-02-28" in said
    after = files.state()
    changed = {Path(path).name for path in before if path in after and after[path] != before[path]}
    assert changed == {
        "client.crt",
        "client.key",
        "server.crt",
        "server.key",
        "extender-secret.yaml",
        "kube-scheduler.yaml",
    }
    assert (files.own / "ca.crt").read_bytes() == authority
    assert files.run(now=NOW + 301 * DAY) == "nothing to change"


def test_authority_near_its_end_is_replaced_with_all_that_it_signed(files: ControlPlaneFiles) -> None:
    files.run()
    authority = load(files.own / "ca.crt", files.own / "ca.key")
    late = NOW + 3600 * DAY
    files.run(now=late)
    again = load(files.own / "ca.crt", files.own / "ca.key")
    assert again.certificate != authority.certificate
    assert is_signed_by(client_of(files).certificate, again.certificate)
    assert is_signed_by(serving_of(files).certificate, again.certificate)


def test_another_address_changes_only_the_serving_certificate(files: ControlPlaneFiles) -> None:
    files.run()
    client = client_of(files).chain
    files.run("--url=https://gpu.example.com:9001", "--san=10.0.0.7,gpu2.example.com")
    names = serving_of(files).certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"gpu.example.com", "gpu2.example.com", SERVICE} <= set(names.get_values_for_type(x509.DNSName))
    assert "10.0.0.7" in {str(each) for each in names.get_values_for_type(x509.IPAddress)}
    assert client_of(files).chain == client


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        pytest.param("gas.gpu.svc.example.org", ["gas.gpu.svc", "gas.gpu", "gas"], id="a service"),
        pytest.param("gas.gpu.svc", ["gas.gpu.svc", "gas.gpu", "gas"], id="a service without domain"),
        pytest.param("a.b.c.svc.example.org", [], id="not a service"),
        pytest.param("gas.gpu.svcs.org", [], id="svcs"),
        pytest.param("192.0.2.1", [], id="an address"),
    ],
)
def test_certificate_has_the_short_names_of_a_service(host: str, expected: list[str]) -> None:
    names = serving_names(host)
    assert names[0] == host
    assert [name for name in names[1:] if name in expected] == [name for name in expected if name != host]
    assert len(names) == len(set(names))


def test_certificate_is_for_the_services_of_the_webhooks() -> None:
    services = {f"gas-{name}.{space}.svc" for name in ("admission", "binding") for space in ("gpu", "default")}
    assert services <= set(serving_names("gas-service.gpu.svc.cluster.local"))


class TestClusterAuthority:
    @pytest.fixture
    def cluster(self, files: ControlPlaneFiles) -> tuple[Path, Path]:
        return write_pair(files.etc / "pki", "ca", mint_authority(NOW))

    def named(self, cluster: tuple[Path, Path]) -> list[str]:
        return [f"-cert={cluster[0]}", f"-key={cluster[1]}"]

    @pytest.mark.parametrize("more", [[], ["--cluster-ca"]], ids=["named", "asked for"])
    def test_signs_when_it_is_named(
        self, files: ControlPlaneFiles, cluster: tuple[Path, Path], more: list[str]
    ) -> None:
        said = files.run(*self.named(cluster), *more)
        authority = load(*cluster)
        assert is_signed_by(client_of(files).certificate, authority.certificate)
        assert is_signed_by(serving_of(files).certificate, authority.certificate)
        assert (files.certificates / "ca.crt").read_bytes() == secret_of(files)["data"]["ca.crt"] == authority.chain
        assert "--allowed-names=kube-scheduler" in said
        assert not (files.own / "ca.key").exists()

    # contract E15.2
    def test_its_private_key_is_never_copied(self, files: ControlPlaneFiles, cluster: tuple[Path, Path]) -> None:
        key = cluster[1].read_bytes()
        files.run(*self.named(cluster))
        copies = [path for path in files.root.rglob("*") if path.is_file() and key in path.read_bytes()]
        assert copies == [cluster[1]]

    def test_copy_of_the_key_that_the_original_made_is_replaced(
        self, files: ControlPlaneFiles, cluster: tuple[Path, Path]
    ) -> None:
        write_pair(files.certificates, "client", load(*cluster))
        said = files.run()
        assert "was an authority's own certificate, whose key can sign anything: it is replaced" in said
        assert not client_of(files).is_authority

    def test_certificate_that_other_extenders_get_too_is_noted(
        self, files: ControlPlaneFiles, cluster: tuple[Path, Path]
    ) -> None:
        (files.root / "two.yaml").write_text(ORIGINAL_WITH_ANOTHER)
        template = f"-f={files.root}/two.yaml"
        assert "https://other-service.default.svc.cluster.local:9001 as well" in files.run(template, "-dry-run")
        assert "as well" not in files.run(template, "-dry-run", *self.named(cluster))

    @pytest.mark.parametrize(
        ("days", "sentence"),
        [pytest.param(3651, "expired on", id="expired"), pytest.param(-2, "not valid before", id="not yet valid")],
    )
    def test_outside_of_its_dates_it_signs_nothing(
        self, files: ControlPlaneFiles, cluster: tuple[Path, Path], days: int, sentence: str
    ) -> None:
        with pytest.raises(BadCertificate, match=sentence):
            files.run(*self.named(cluster), now=NOW + days * DAY)


class TestGivenCertificates:
    @pytest.fixture
    def given(self, tmp_path: Path) -> dict[str, Path]:
        authority = mint_authority(NOW)
        paths = {}
        for name, pair in {
            "ca": authority,
            "client": mint_client(authority, NOW),
            "server": mint_server(authority, [SERVICE], NOW),
            "other": mint_authority(NOW),
            "elsewhere": mint_server(authority, ["elsewhere.example.com"], NOW),
        }.items():
            paths[f"{name}.crt"], paths[f"{name}.key"] = write_pair(tmp_path / "given", name, pair)
        return paths

    def flags(self, given: dict[str, Path], **other: str) -> list[str]:
        names = {
            "cert": "client.crt",
            "key": "client.key",
            "client-ca": "ca.crt",
            "serving-cert": "server.crt",
            "serving-key": "server.key",
            "serving-ca": "ca.crt",
            **{name.replace("_", "-"): value for name, value in other.items()},
        }
        return [f"--{name}={given[value]}" for name, value in names.items()]

    def test_are_used_as_they_are(self, files: ControlPlaneFiles, given: dict[str, Path]) -> None:
        files.run(*self.flags(given))
        assert client_of(files).chain == given["client.crt"].read_bytes()
        assert secret_of(files)["data"]["tls.crt"] == given["server.crt"].read_bytes()
        assert [path.name for path in files.own.iterdir()] == ["extender-secret.yaml"]
        assert files.run(*self.flags(given)) == "nothing to change"

    def test_client_certificate_of_another_program_is_not_replaced_by_a_given_one(
        self, files: ControlPlaneFiles, given: dict[str, Path]
    ) -> None:
        write_pair(files.certificates, "client", mint_client(mint_authority(NOW, name="x"), NOW, name="backup-agent"))
        with pytest.raises(ConfiguratorError, match="for 'backup-agent' that the configurator did not make"):
            files.run(*self.flags(given)[:3])

    def test_only_the_client_may_be_given(self, files: ControlPlaneFiles, given: dict[str, Path]) -> None:
        files.run(*self.flags(given)[:3])
        assert secret_of(files)["data"]["ca.crt"] == given["ca.crt"].read_bytes()
        assert (files.certificates / "ca.crt").read_bytes() == (files.own / "ca.crt").read_bytes()

    @pytest.mark.parametrize(
        ("other", "sentence"),
        [
            pytest.param({"key": "server.key"}, "is not the private key of", id="a key that does not match"),
            pytest.param({"key": "client.crt"}, "holds no PEM private key", id="no key"),
            pytest.param({"cert": "client.key"}, "holds no PEM certificate", id="no certificate"),
            pytest.param({"client_ca": "other.crt"}, "was not signed by the authority in", id="another authority's"),
            pytest.param(
                {"cert": "server.crt", "key": "server.key"}, "may not be used by a client", id="a server's as client"
            ),
            pytest.param(
                {"serving_cert": "client.crt", "serving_key": "client.key"},
                "may not be used by a server",
                id="a client's",
            ),
            pytest.param(
                {"serving_cert": "elsewhere.crt", "serving_key": "elsewhere.key"},
                f"is not for {SERVICE}, which kube-scheduler calls",
                id="for another host",
            ),
            pytest.param(
                {"serving_cert": "ca.crt", "serving_key": "ca.key"},
                "is the certificate of an authority",
                id="an authority to serve with",
            ),
        ],
    )
    def test_that_do_not_fit_are_refused(
        self, files: ControlPlaneFiles, given: dict[str, Path], other: dict[str, str], sentence: str
    ) -> None:
        before = files.state()
        with pytest.raises(BadCertificate, match=sentence):
            files.run(*self.flags(given, **other))
        assert files.state() == before

    def test_that_has_expired_is_refused(self, files: ControlPlaneFiles, given: dict[str, Path]) -> None:
        with pytest.raises(BadCertificate, match="expired on 2027-05-04"):
            files.run(*self.flags(given), now=NOW + 366 * DAY)

    def test_that_is_encrypted_is_refused(self, files: ControlPlaneFiles, given: dict[str, Path]) -> None:
        key = serialization.load_pem_private_key(given["client.key"].read_bytes(), None)
        secret = serialization.BestAvailableEncryption(b"secret")
        given["client.key"].write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
        )
        with pytest.raises(BadCertificate, match="is encrypted"):
            files.run(*self.flags(given))

    def test_rsa_keys_are_as_good(self, files: ControlPlaneFiles, given: dict[str, Path]) -> None:
        authority = load(given["ca.crt"], given["ca.key"])
        key = rsa.generate_private_key(65537, 2048)
        template = load(given["client.crt"], given["client.key"]).certificate
        signed = (
            x509.CertificateBuilder()
            .subject_name(template.subject)
            .issuer_name(template.issuer)
            .public_key(key.public_key())
            .serial_number(7)
            .not_valid_before(template.not_valid_before_utc)
            .not_valid_after(template.not_valid_after_utc)
            .sign(authority.key, hashes.SHA256())
        )
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        given["client.crt"].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        given["client.key"].write_bytes(text)
        files.run(*self.flags(given))
        assert (files.certificates / "client.key").read_bytes() == text


class TestExistingFiles:
    @pytest.mark.parametrize(
        ("directory", "name", "content"),
        [
            pytest.param("certificates", "client.key", None, id="a client key that is gone"),
            pytest.param("certificates", "client.key", b"half", id="half a client key"),
            pytest.param("certificates", "client.key", OTHER_KEY, id="a key of another certificate"),
            pytest.param("own", "server.key", None, id="a serving key that is gone"),
            pytest.param("own", "server.crt", b"half", id="half a serving certificate"),
        ],
    )
    def test_damaged_certificate_of_our_own_is_replaced(
        self, files: ControlPlaneFiles, directory: str, name: str, content: bytes | None
    ) -> None:
        files.run()
        path: Path = getattr(files, directory) / name
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        files.run()
        client_of(files)
        serving_of(files)

    def test_authority_from_another_control_plane_node_is_used(self, files: ControlPlaneFiles, tmp_path: Path) -> None:
        first = ControlPlaneFiles(tmp_path / "first")
        first.run()
        files.own.mkdir(parents=True)
        for path in first.own.iterdir():
            (files.own / path.name).write_bytes(path.read_bytes())
            (files.own / path.name).chmod(0o600 if path.suffix in (".key", ".yaml") else 0o644)
        files.run()
        assert secret_of(files) == secret_of(first)
        assert client_of(files).chain != client_of(first).chain
        assert is_signed_by(client_of(files).certificate, load(first.own / "ca.crt", first.own / "ca.key").certificate)

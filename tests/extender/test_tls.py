from __future__ import annotations

import asyncio
import os
import shutil
import ssl
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from gas.cluster.credentials import find_credentials
from gas.daemon.logs import LIMITED_LINES
from gas.extender.command_line import parse_flags
from gas.extender.metrics import Metrics
from gas.extender.program import clients
from gas.extender.tls import CertificateFiles, CertificateFlags, ServingCertificates
from gas.values.errors import GasError
from sandbox.certificates import Authority, PemFiles
from sandbox.programs import write_kubeconfig
from tests.extender.handshakes import client_context, encrypted, shake_hands, with_dns_names

VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda v: v.name)


@dataclass
class TlsPort:
    """The certificate files of a port, the authority that signs them and its clients, and what the port counts."""

    authority: Authority
    files: CertificateFiles
    metrics: Metrics = field(default_factory=lambda: Metrics("test"))


@pytest.fixture
def port(authority: Authority) -> TlsPort:
    server = authority.server()
    return TlsPort(authority, CertificateFiles(cert=server.certificate, key=server.key, cacert=authority.certificate))


def refused(metrics: Metrics, reason: str) -> float | None:
    return metrics.registry.get_sample_value("gas_extender_refused_clients_total", {"reason": reason})


def reloads(metrics: Metrics, result: str) -> float:
    return metrics.registry.get_sample_value("gas_extender_certificate_reloads_total", {"result": result}) or 0.0


def look_twice(certificates: ServingCertificates) -> bool:
    certificates.reload()
    return certificates.reload()


class TestClients:
    @VERSIONS
    def test_a_client_of_the_authority_may_call(self, port: TlsPort, version: ssl.TLSVersion) -> None:
        context = ServingCertificates(port.files, port.metrics)
        _, server = shake_hands(context, client_context(port.authority, port.authority.client("scheduler"), version))
        assert server.version() == version.name.replace("_", ".")

    # contract E10.1
    @VERSIONS
    def test_a_client_without_a_certificate_is_refused(
        self, port: TlsPort, version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
    ) -> None:
        context = ServingCertificates(port.files, port.metrics)
        with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
            shake_hands(context, client_context(port.authority, None, version))
        assert refused(port.metrics, "no-certificate") == 1
        assert "it has no certificate" in caplog.text

    # contract E10.1
    @VERSIONS
    def test_a_client_of_a_foreign_authority_is_refused(
        self, port: TlsPort, version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
    ) -> None:
        foreign = Authority(port.authority.directory, "foreign")
        context = ServingCertificates(port.files, port.metrics)
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(context, client_context(port.authority, foreign.client("scheduler"), version))
        assert refused(port.metrics, "unverified") == 1
        assert "cannot be verified" in caplog.text

    def test_a_client_whose_certificate_has_ended_is_refused(self, port: TlsPort) -> None:
        ended = port.authority.client("scheduler", life=-timedelta(days=1))
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            shake_hands(ServingCertificates(port.files, port.metrics), client_context(port.authority, ended))

    # contract E10.1
    @pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
    def test_tls_before_1_2_is_refused(self, port: TlsPort) -> None:
        client = client_context(port.authority, port.authority.client("scheduler"))
        client.set_ciphers("ALL:@SECLEVEL=0")
        client.minimum_version = client.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(ssl.SSLError):
            shake_hands(ServingCertificates(port.files, port.metrics), client)
        assert refused(port.metrics, "handshake") == 1

    def test_a_client_that_supports_http2_gets_http_1_1(self, port: TlsPort) -> None:
        client = client_context(port.authority, port.authority.client("scheduler"))
        client.set_alpn_protocols(["h2", "http/1.1"])
        context = ServingCertificates(port.files, port.metrics)
        assert shake_hands(context, client)[1].selected_alpn_protocol() == "http/1.1"


class TestAllowedNames:
    @VERSIONS
    @pytest.mark.parametrize(
        ("name", "dns"),
        [
            pytest.param("scheduler", (), id="common-name"),
            pytest.param("other", ("x", "scheduler"), id="dns-name"),
        ],
    )
    def test_a_named_client_may_call(
        self, port: TlsPort, version: ssl.TLSVersion, name: str, dns: tuple[str, ...]
    ) -> None:
        certificates = ServingCertificates(port.files, port.metrics, allowed_names=frozenset({"scheduler"}))
        pair = with_dns_names(port.authority, name, *dns)
        shake_hands(certificates, client_context(port.authority, pair, version))
        assert refused(port.metrics, "name") is None

    @VERSIONS
    def test_another_client_is_refused_logged_with_its_names_and_counted(
        self, port: TlsPort, version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
    ) -> None:
        certificates = ServingCertificates(port.files, port.metrics, allowed_names=frozenset({"scheduler"}))
        pair = with_dns_names(port.authority, "kubelet", "node-1")
        with pytest.raises(ssl.SSLError, match="may not call"):
            shake_hands(certificates, client_context(port.authority, pair, version))
        assert refused(port.metrics, "name") == 1
        (record,) = caplog.records
        assert vars(record)["names"] == "kubelet,node-1"

    def test_the_log_names_the_flag_of_the_port(self, port: TlsPort, caplog: pytest.LogCaptureFixture) -> None:
        of_webhooks = replace(port.files, flags=CertificateFlags(names="admission-client-names"))
        certificates = ServingCertificates(of_webhooks, port.metrics, allowed_names=frozenset({"kube-apiserver"}))
        with pytest.raises(ssl.SSLError):
            shake_hands(certificates, client_context(port.authority, port.authority.client("kube-scheduler")))
        sentence = "refused a client: none of its certificate's names is in --admission-client-names"
        assert [record.getMessage() for record in caplog.records] == [sentence]

    def test_a_flood_of_refused_clients_does_not_fill_the_log(
        self, port: TlsPort, caplog: pytest.LogCaptureFixture
    ) -> None:
        certificates = ServingCertificates(port.files, port.metrics, allowed_names=frozenset({"scheduler"}))
        client = client_context(port.authority, port.authority.client("kubelet"))
        for _ in range(LIMITED_LINES + 5):
            with pytest.raises(ssl.SSLError):
                shake_hands(certificates, client)
        assert refused(port.metrics, "name") == LIMITED_LINES + 5
        assert len(caplog.records) == LIMITED_LINES

    def test_a_part_of_a_name_is_not_the_name(self, port: TlsPort) -> None:
        certificates = ServingCertificates(port.files, port.metrics, allowed_names=frozenset({"scheduler"}))
        for name in ("scheduler2", "a.scheduler", "Scheduler", "scheduler,x"):
            with pytest.raises(ssl.SSLError):
                shake_hands(certificates, client_context(port.authority, port.authority.client(name, file="c")))


class TestRenewal:
    def serial(self, certificates: ServingCertificates, authority: Authority, pair: PemFiles) -> object:
        caller, _ = shake_hands(certificates, client_context(authority, pair))
        return (caller.getpeercert() or {})["serialNumber"]

    def test_a_changed_pair_is_served_to_new_connections(self, port: TlsPort) -> None:
        scheduler = port.authority.client("scheduler")
        certificates = ServingCertificates(port.files, port.metrics)
        before = self.serial(certificates, port.authority, scheduler)
        port.authority.server(life=timedelta(days=9))
        assert look_twice(certificates)
        assert self.serial(certificates, port.authority, scheduler) != before
        assert reloads(port.metrics, "used") == 1
        assert not look_twice(certificates)

    def test_files_are_used_once_two_reads_found_the_same(
        self, port: TlsPort, caplog: pytest.LogCaptureFixture
    ) -> None:
        certificates = ServingCertificates(port.files, port.metrics)
        key = port.files.key.read_bytes()
        port.authority.server()
        new_key = port.files.key.read_bytes()
        port.files.key.write_bytes(key)  # the new certificate is there, its key not yet
        assert not certificates.reload()
        port.files.key.write_bytes(new_key)
        assert not certificates.reload()
        assert certificates.reload()
        assert reloads(port.metrics, "failed") == 0
        assert not [record for record in caplog.records if record.levelname == "ERROR"]

    def test_a_volume_that_swaps_a_link_is_followed(self, port: TlsPort, tmp_path: Path) -> None:
        old, new, link = tmp_path / "..1", tmp_path / "..2", tmp_path / "..data"
        for folder in (old, new):
            folder.mkdir()
            pair = port.authority.server()
            shutil.copy(pair.certificate, folder / "tls.crt")
            shutil.copy(pair.key, folder / "tls.key")
        link.symlink_to(old)
        (tmp_path / "tls.crt").symlink_to(link / "tls.crt")
        (tmp_path / "tls.key").symlink_to(link / "tls.key")
        linked = replace(port.files, cert=tmp_path / "tls.crt", key=tmp_path / "tls.key")
        certificates = ServingCertificates(linked, port.metrics)
        (tmp_path / "..tmp").symlink_to(new)
        os.replace(tmp_path / "..tmp", link)  # noqa: PTH105 -- the very call that a volume makes
        assert look_twice(certificates)

    @VERSIONS
    def test_a_withdrawn_authority_is_gone_with_the_next_connection_even_for_a_known_session(
        self, port: TlsPort, version: ssl.TLSVersion
    ) -> None:
        new = Authority(port.authority.directory, "new")
        both = port.authority.directory / "both.crt"
        both.write_bytes(port.authority.certificate.read_bytes() + new.certificate.read_bytes())
        certificates = ServingCertificates(replace(port.files, cacert=both), port.metrics)
        old_client = client_context(port.authority, port.authority.client("scheduler"), version)
        new_client = client_context(port.authority, new.client("scheduler2"), version)
        caller, _ = shake_hands(certificates, old_client)
        shake_hands(certificates, new_client)
        both.write_bytes(new.certificate.read_bytes())
        assert look_twice(certificates)
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(certificates, old_client, caller.session)
        shake_hands(certificates, new_client)

    @pytest.mark.parametrize("damage", ["mismatch", "garbage", "gone", "bad-authority"])
    def test_unusable_files_leave_the_old_ones_in_use_and_are_logged_once_and_counted(
        self, port: TlsPort, damage: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        scheduler = port.authority.client("scheduler")
        clients = Path(shutil.copy(port.authority.certificate, port.authority.certificate.with_name("clients.crt")))
        files = replace(port.files, cacert=clients)
        certificates = ServingCertificates(files, port.metrics)
        before = self.serial(certificates, port.authority, scheduler)
        good = {file: file.read_bytes() for file in (files.cert, files.key, clients)}
        if damage == "mismatch":
            files.key.write_bytes(port.authority.client("x").key.read_bytes())
        elif damage == "garbage":
            files.cert.write_bytes(b"\x00\xff")
        elif damage == "gone":
            files.key.unlink()
        else:
            clients.write_text("nothing")
        for _ in range(4):
            assert not certificates.reload()
        assert reloads(port.metrics, "failed") == 1
        assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
        assert self.serial(certificates, port.authority, scheduler) == before
        for file, content in good.items():
            file.write_bytes(content)
        assert not look_twice(certificates)
        port.authority.server()
        assert look_twice(certificates)
        assert self.serial(certificates, port.authority, scheduler) != before

    async def test_the_files_are_checked_periodically(self, port: TlsPort) -> None:
        certificates = ServingCertificates(port.files, port.metrics)
        watching = asyncio.create_task(certificates.watch(0.01))
        port.authority.server()
        for _ in range(500):
            if reloads(port.metrics, "used"):
                break
            await asyncio.sleep(0.02)
        watching.cancel()
        assert reloads(port.metrics, "used") == 1

    def test_the_metric_shows_when_certificates_end(self, port: TlsPort) -> None:
        def days_left(flag: str) -> float:
            import time

            name = "gas_extender_certificate_expiry_timestamp_seconds"
            end = port.metrics.registry.get_sample_value(name, {"flag": flag})
            assert end is not None
            return (end - time.time()) / 86400

        certificates = ServingCertificates(port.files, port.metrics)
        assert days_left("cert") == pytest.approx(365, abs=0.1)
        assert days_left("cacert") == pytest.approx(3650, abs=0.1)
        port.authority.server(life=timedelta(days=9))
        look_twice(certificates)
        assert days_left("cert") == pytest.approx(9, abs=0.1)


class TestAtTheStart:
    @pytest.mark.parametrize("flag", ["cert", "key", "cacert"])
    @pytest.mark.parametrize(
        ("content", "sentence"),
        [
            pytest.param(None, "cannot be read: No such file or directory", id="missing"),
            pytest.param("a folder", "cannot be read: Is a directory", id="folder"),
            pytest.param(b"", "", id="empty"),
            pytest.param(b"\x00\xffgarbage", "", id="garbage"),
        ],
    )
    def test_a_file_that_cannot_be_used_is_named_with_its_flag(
        self, port: TlsPort, flag: str, content: bytes | str | None, sentence: str
    ) -> None:
        file: Path = getattr(port.files, flag)
        file.unlink()
        if isinstance(content, bytes):
            file.write_bytes(content)
        elif content:
            file.mkdir()
        with pytest.raises(GasError, match=f"^--{flag} {file} ") as error:
            ServingCertificates(port.files, port.metrics)
        assert sentence in str(error.value)
        assert error.value.exit_code != 0

    def test_a_file_without_permission_is_named(self, port: TlsPort, monkeypatch: pytest.MonkeyPatch) -> None:
        def denied(*_args: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", denied)
        with pytest.raises(GasError, match=r"--cert .* cannot be read: Permission denied"):
            ServingCertificates(port.files, port.metrics)

    def test_a_key_of_another_certificate(self, port: TlsPort) -> None:
        other = replace(port.files, key=port.authority.client("x").key)
        with pytest.raises(GasError, match=rf"^--key {other.key} is not the private key of --cert {port.files.cert}$"):
            ServingCertificates(other, port.metrics)

    def test_an_encrypted_key_does_not_ask_for_a_passphrase(self, port: TlsPort) -> None:
        port.files.key.write_bytes(encrypted(port.files.key))
        with pytest.raises(GasError, match=r"^--key .* is encrypted"):
            ServingCertificates(port.files, port.metrics)

    def test_a_damaged_key(self, port: TlsPort) -> None:
        lines = port.files.key.read_text().splitlines()
        port.files.key.write_text("\n".join([lines[0], "AAAA", lines[-1]]))
        with pytest.raises(GasError, match=r"^--cert .* cannot be used with --key "):
            ServingCertificates(port.files, port.metrics)

    def test_key_and_certificate_swapped(self, port: TlsPort) -> None:
        with pytest.raises(GasError, match=r"^--cert .* has no PEM certificate in it"):
            ServingCertificates(replace(port.files, cert=port.files.key, key=port.files.cert), port.metrics)


class TestClusterAuthority:
    """A Secret of ``kubectl create secret tls`` has no ca.crt."""

    @pytest.mark.parametrize("form", ["file", "data"])
    async def test_without_ca_crt_the_clusters_authority_and_two_names_count(
        self, port: TlsPort, tmp_path: Path, caplog: pytest.LogCaptureFixture, form: str
    ) -> None:
        authority = port.authority.certificate
        ca = authority if form == "file" else authority.read_bytes()
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", "https://h:6443", ca=ca, token="any")
        address = (await find_credentials(str(kubeconfig))).address
        missing = tmp_path / "ca.crt"
        files, names = clients(parse_flags([f"--cacert={missing}"]), address.authority)
        assert f"--cacert {missing} is missing" in caplog.text
        assert names == {"kubernetes", "kube-scheduler"}
        files = replace(files, cert=port.files.cert, key=port.files.key)
        context = ServingCertificates(files, port.metrics, allowed_names=names)
        for name in ("kubernetes", "kube-scheduler"):
            shake_hands(context, client_context(port.authority, port.authority.client(name)))
        with pytest.raises(ssl.SSLError, match="it may not call"):
            shake_hands(context, client_context(port.authority, port.authority.client("system:node:n1")))

    def test_names_that_are_given_count(self, tmp_path: Path) -> None:
        flags = parse_flags([f"--cacert={tmp_path / 'ca.crt'}", "--allowed-names=own"])
        files, names = clients(flags, "/cluster/ca.crt")
        assert (files.cacert, names) == (Path("/cluster/ca.crt"), frozenset({"own"}))

    def test_a_ca_crt_that_is_there_counts_alone(self, port: TlsPort) -> None:
        files, names = clients(parse_flags([f"--cacert={port.files.cacert}"]), "/cluster/ca.crt")
        assert (files.cacert, names) == (port.files.cacert, frozenset())

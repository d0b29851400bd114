"""With components/cluster-authority, the kube-scheduler that the original's configurator set up can still call.

It shows the certificate of the cluster's authority itself, as kubeadm makes it.
"""

from __future__ import annotations

import datetime
import re
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gas.extender.metrics import Metrics
from gas.extender.tls import CertificateFiles, ServingCertificates
from tests.deploy.manifests import COMPONENTS
from tests.extender.handshakes import shake_hands

(ALLOWED,) = re.findall(
    r"value: --allowed-names=(\S+)", (COMPONENTS / "cluster-authority/kustomization.yaml").read_text(encoding="utf-8")
)


def kubeadm_authority(directory: Path, name: str) -> tuple[Path, Path]:
    """Write certificate and key of a cluster CA, which has its own name among its DNS names."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = x509.KeyUsage(
        digital_signature=True, key_encipherment=True, key_cert_sign=True, content_commitment=False,
        data_encipherment=False, key_agreement=False, crl_sign=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = directory / "ca.crt", directory / "ca.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form, unprotected = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, unprotected))
    return files


def call(certificate: Path, key: Path) -> None:
    """Connect a client with this certificate to the extender's TLS. Raises ssl.SSLError if it is refused."""
    files = CertificateFiles(certificate, key, certificate)
    serving = ServingCertificates(files, Metrics("test"), allowed_names=frozenset(ALLOWED.split(",")))
    calling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    calling.check_hostname = False
    calling.verify_mode = ssl.CERT_NONE
    calling.load_cert_chain(certificate, key)
    shake_hands(serving, calling)


def test_the_scheduler_of_the_original_may_call(tmp_path: Path) -> None:
    call(*kubeadm_authority(tmp_path, "kubernetes"))


def test_a_scheduler_with_a_certificate_that_our_configurator_had_the_authority_sign_may_call(tmp_path: Path) -> None:
    call(*kubeadm_authority(tmp_path, "kube-scheduler"))


def test_another_certificate_of_the_authority_may_not(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLError):
        call(*kubeadm_authority(tmp_path, "system:node:worker"))

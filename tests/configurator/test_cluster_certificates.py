"""Certificates that are kept in Secrets, over Secrets in memory."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from configurator.cluster_certificates import TRIES, Secrets, Wanted, renew
from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiRefused

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("gas-service.gpu.svc.cluster.local", "localhost", "127.0.0.1")


WANTED = Wanted(authority="authority", serving="serving", client="client", names=NAMES)


@dataclass
class Memory:
    """Three empty Secrets that refuse a change based on an outdated version, as the API server does."""

    data: dict[str, dict[str, bytes]] = field(default_factory=lambda: {"authority": {}, "serving": {}, "client": {}})
    versions: dict[str, int] = field(default_factory=lambda: {"authority": 1, "serving": 1, "client": 1})
    writes: int = 0
    before_a_write: Callable[[], None] = lambda: None

    async def request(self, method: str, path: str, *, body: bytes = b"", content_type: str = "") -> bytes:
        folder, _, name = path.rpartition("/")
        assert folder == "/api/v1/namespaces/gpu/secrets"
        if method == "PATCH":
            assert content_type == "application/merge-patch+json"
            self.before_a_write()
            patch = json.loads(body)
            if patch["metadata"]["resourceVersion"] != str(self.versions[name]):
                raise ApiRefused(409, "Conflict", "the object has been modified")
            self.change(name, {key: base64.b64decode(text) for key, text in patch["data"].items()})
            self.writes += 1
        data = {key: base64.b64encode(content).decode() for key, content in self.data[name].items()}
        return json.dumps({"metadata": {"resourceVersion": str(self.versions[name])}, "data": data}).encode()

    def change(self, name: str, data: dict[str, bytes]) -> None:
        self.data[name] = data
        self.versions[name] += 1

    def certificate(self, name: str) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.data[name]["tls.crt"])


def secrets_of(memory: Memory) -> Secrets:
    return Secrets(cast(ApiServer, memory), "gpu")


@pytest.fixture
async def filled() -> Memory:
    secrets = Memory()
    await renew(secrets_of(secrets), WANTED, NOW)
    return secrets


async def test_three_empty_secrets_become_an_authority_and_two_certificates_of_it() -> None:
    secrets = Memory()
    said = await renew(secrets_of(secrets), WANTED, NOW)
    assert [sentence.split(",")[0] for sentence in said] == [
        "Secret authority: a new authority",
        "Secret serving: a new certificate",
        "Secret client: a new certificate",
    ]
    authority = secrets.certificate("authority")
    for name in ("serving", "client"):
        secrets.certificate(name).verify_directly_issued_by(authority)
        assert secrets.data[name].keys() == {"tls.crt", "tls.key", "ca.crt"}
        assert secrets.data[name]["ca.crt"] == secrets.data["authority"]["tls.crt"]
        key = serialization.load_pem_private_key(secrets.data[name]["tls.key"], None)
        assert key.public_key() == secrets.certificate(name).public_key()
    names = secrets.certificate("serving").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == list(NAMES)
    assert secrets.certificate("client").subject.rfc4514_string() == "CN=kube-scheduler"


async def test_good_secrets_stay_as_they_are(filled: Memory) -> None:
    before, writes = dict(filled.data), filled.writes
    assert await renew(secrets_of(filled), WANTED, NOW + timedelta(days=270)) == []
    assert (filled.data, filled.writes) == (before, writes)


async def test_certificates_that_expire_within_90_days_are_replaced_by_the_same_authority(filled: Memory) -> None:
    before = dict(filled.data)
    said = await renew(secrets_of(filled), WANTED, NOW + timedelta(days=276))
    assert len(said) == 2
    assert filled.data["authority"] == before["authority"]
    for name in ("serving", "client"):
        assert filled.data[name] != before[name]
        assert filled.data[name]["ca.crt"] == before[name]["ca.crt"]


async def test_an_authority_that_expires_is_replaced_with_all_that_it_signed(filled: Memory) -> None:
    before = dict(filled.data)
    assert len(await renew(secrets_of(filled), WANTED, NOW + timedelta(days=3600))) == 3
    assert all(filled.data[name] != before[name] for name in before)
    filled.certificate("client").verify_directly_issued_by(filled.certificate("authority"))


@pytest.mark.parametrize(
    ("name", "key", "content", "sentence"),
    [
        pytest.param("serving", "tls.crt", b"nonsense", "no PEM certificate that can be read", id="no certificate"),
        pytest.param("serving", "tls.key", b"nonsense", "no PEM private key that can be read", id="no key"),
        pytest.param("authority", "tls.key", b"nonsense", "no PEM private key that can be read", id="authority's key"),
        pytest.param("client", "tls.key", None, "", id="key missing"),
        pytest.param("client", "ca.crt", b"another", "", id="another authority"),
    ],
)
async def test_an_unusable_secret_is_replaced(
    filled: Memory, name: str, key: str, content: bytes | None, sentence: str
) -> None:
    changed = dict(filled.data[name])
    if content is None:
        del changed[key]
    else:
        changed[key] = content
    filled.change(name, changed)
    said = await renew(secrets_of(filled), WANTED, NOW)
    assert sentence in "\n".join(said)
    filled.certificate("serving").verify_directly_issued_by(filled.certificate("authority"))
    assert await renew(secrets_of(filled), WANTED, NOW) == []


@pytest.mark.parametrize("at", [0, 1, 2])
async def test_two_at_once_end_with_one_authority(at: int) -> None:
    """The other one does all of its work while this one is about to write for the first, second or third time."""
    secrets, other = Memory(), Memory()
    await renew(secrets_of(other), WANTED, NOW)
    count = 0

    def the_other_is_faster() -> None:
        nonlocal count
        if count == at:
            for name, data in other.data.items():
                secrets.change(name, data)
        count += 1

    secrets.before_a_write = the_other_is_faster
    await renew(secrets_of(secrets), WANTED, NOW)
    for name in ("serving", "client"):
        secrets.certificate(name).verify_directly_issued_by(secrets.certificate("authority"))
    assert secrets.data["authority"] == other.data["authority"]


async def test_constant_conflicts_end_with_an_error() -> None:
    secrets = Memory()
    secrets.before_a_write = lambda: secrets.change("authority", {})
    with pytest.raises(ApiRefused, match="has been modified"):
        await renew(secrets_of(secrets), WANTED, NOW)
    assert secrets.versions["authority"] == 1 + TRIES


async def test_a_refusal_ends_at_once() -> None:
    secrets = Memory()
    asked = 0

    def refuse() -> None:
        nonlocal asked
        asked += 1
        raise ApiRefused(403, "Forbidden", "no")

    secrets.before_a_write = refuse
    with pytest.raises(ApiRefused, match="403"):
        await renew(secrets_of(secrets), WANTED, NOW)
    assert asked == 1


async def test_the_api_server_trusts_an_authority_before_the_extender_presents_a_certificate_of_it() -> None:
    secrets = Memory()
    seen: list[tuple[bytes, bool]] = []

    async def trust(authority: bytes, now: datetime) -> list[str]:
        seen.append((authority, "tls.crt" in secrets.data["serving"]))
        return [f"trusted at {now:%H:%M}"]

    said = await renew(secrets_of(secrets), WANTED, NOW, trust=trust)
    assert seen == [(secrets.data["authority"]["tls.crt"], False)]
    assert said[1] == "trusted at 00:00"
    await renew(
        secrets_of(secrets), WANTED, NOW, trust=trust
    )  # also if the certificates are good: the webhooks may be new
    assert len(seen) == 2


async def test_webhooks_that_cannot_be_changed_leave_the_extender_its_certificate() -> None:
    secrets = Memory()

    async def trust(_authority: bytes, _now: datetime) -> list[str]:
        raise ApiRefused(403, "Forbidden", "no")

    with pytest.raises(ApiRefused, match="403"):
        await renew(secrets_of(secrets), WANTED, NOW, trust=trust)
    assert secrets.data["serving"] == {}


def test_without_a_cluster_it_ends_with_a_sentence() -> None:
    arguments = ("--namespace=gpu", "--authority=a", "--serving=s", "--client=c", "--names=n")
    environment = {**os.environ, "KUBECONFIG": "/nonexistent/kubeconfig", "HOME": "/nonexistent"}
    environment.pop("KUBERNETES_SERVICE_HOST", None)
    done = subprocess.run(
        [sys.executable, "-m", "configurator.cluster_certificates", *arguments],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("certificates: ")
    assert "Traceback" not in done.stderr

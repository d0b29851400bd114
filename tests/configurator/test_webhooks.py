"""The authority that the API server trusts in the admission webhooks, over an API server in memory."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from configurator.certificates import Pair, mint_authority
from configurator.webhooks import OVERLAP, bundle, trust
from gas.cluster.errors import ApiRefused

NOW = datetime(2026, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)
OLD, NEW = mint_authority(NOW - 9 * YEAR), mint_authority(NOW)
EXPIRED = mint_authority(NOW - 11 * YEAR)
KINDS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")


def of(text: bytes) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(text) if text else []


def test_an_empty_bundle_gets_the_authority() -> None:
    assert bundle(NEW.chain, b"", written=None, now=NOW) == NEW.chain


def test_an_unreadable_bundle_is_replaced() -> None:
    assert bundle(NEW.chain, b"nonsense", written=NOW - YEAR, now=NOW) == NEW.chain


def test_an_earlier_authority_stays_until_the_extender_has_its_new_certificate() -> None:
    both = bundle(NEW.chain, OLD.chain, written=NOW - YEAR, now=NOW)
    assert of(both) == [NEW.certificate, OLD.certificate]
    just_before = NOW + OVERLAP - timedelta(seconds=1)
    assert bundle(NEW.chain, both, written=NOW, now=just_before) == both
    assert bundle(NEW.chain, both, written=NOW, now=NOW + OVERLAP) == NEW.chain


def test_an_authority_that_another_program_has_joined_stays_as_long_as_it_is_valid() -> None:
    both = NEW.chain + OLD.chain
    assert bundle(NEW.chain, both, written=None, now=NOW + YEAR / 2) == both
    assert bundle(NEW.chain, both, written=None, now=OLD.certificate.not_valid_after_utc + OVERLAP) == NEW.chain


@given(
    st.lists(st.sampled_from([OLD, NEW, EXPIRED]), max_size=5),
    st.none() | st.timedeltas(timedelta(), 2 * YEAR).map(lambda age: NOW - age),
    st.sampled_from([OLD, NEW]),
)
def test_every_bundle_trusts_the_authority_first_and_does_not_change_again(
    found: list[Pair], written: datetime | None, authority: Pair
) -> None:
    made = bundle(authority.chain, b"".join(each.chain for each in found), written=written, now=NOW)
    assert of(made)[0] == authority.certificate
    assert len(of(made)) == len(set(of(made)))
    assert EXPIRED.certificate not in of(made)
    assert bundle(authority.chain, made, written=NOW, now=NOW) == made
    if authority not in found:
        # Whichever certificate the extender presents, it is trusted.
        assert {each.certificate for each in found} - {EXPIRED.certificate} <= set(of(made))


@dataclass
class Api:
    """Webhook configurations, with the API server's checks of versions and its records of who wrote when."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    patches: int = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        urgent: bool = False,
    ) -> bytes:
        kind = path.split("/")[4]
        if kind not in self.objects or not path.endswith("/gas-admission"):
            raise ApiRefused(404, "NotFound", f"{path} not found")
        found = self.objects[kind]
        if method == "PATCH":
            assert content_type == "application/strategic-merge-patch+json"
            patch = json.loads(body or b"")
            if patch["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
                raise ApiRefused(409, "Conflict", "the object has been modified")
            for each in patch["webhooks"]:
                (webhook,) = [old for old in found["webhooks"] if old["name"] == each["name"]]
                webhook["clientConfig"] |= each["clientConfig"]
            manager = (query or {})["fieldManager"]
            found["metadata"]["managedFields"] = [{"manager": manager, "time": f"{NOW:%Y-%m-%dT%H:%M:%SZ}"}]
            self.patches += 1
        return json.dumps(found).encode()

    def bundles(self) -> set[bytes]:
        texts = [
            each["clientConfig"].get("caBundle", "") for found in self.objects.values() for each in found["webhooks"]
        ]
        return {base64.b64decode(text) for text in texts}


def configuration(*names: str) -> dict[str, Any]:
    service = {"name": "gas-admission", "namespace": "default"}
    webhooks = [{"name": name, "clientConfig": {"service": service}, "timeoutSeconds": 2} for name in names]
    return {"metadata": {"name": "gas-admission", "resourceVersion": "7"}, "webhooks": webhooks}


@pytest.fixture
def api() -> Api:
    return Api(
        {KINDS[0]: configuration("create.pods.gas", "update.pods.gas"), KINDS[1]: configuration("bind.pods.gas")}
    )


async def test_every_webhook_of_both_configurations_trusts_the_authority(api: Api) -> None:
    said, missing = await trust(api, "gas-admission", NEW.chain, NOW)  # type: ignore[arg-type]
    assert ([sentence.split(":")[0] for sentence in said], missing) == ([f"{kind} gas-admission" for kind in KINDS], [])
    assert api.bundles() == {NEW.chain}
    assert api.objects[KINDS[1]]["webhooks"][0]["clientConfig"]["service"]["name"] == "gas-admission"


async def test_a_second_run_writes_nothing(api: Api) -> None:
    await trust(api, "gas-admission", NEW.chain, NOW)  # type: ignore[arg-type]
    before = api.patches
    assert await trust(api, "gas-admission", NEW.chain, NOW + YEAR) == ([], [])  # type: ignore[arg-type]
    assert api.patches == before


async def test_both_authorities_are_trusted_while_one_replaces_the_other(api: Api) -> None:
    await trust(api, "gas-admission", OLD.chain, NOW)  # type: ignore[arg-type]
    await trust(api, "gas-admission", NEW.chain, NOW)  # type: ignore[arg-type]
    (both,) = api.bundles()
    assert of(both) == [NEW.certificate, OLD.certificate]
    await trust(api, "gas-admission", NEW.chain, NOW + OVERLAP)  # type: ignore[arg-type]
    assert api.bundles() == {NEW.chain}


async def test_webhooks_that_do_not_exist_are_named(api: Api) -> None:
    del api.objects[KINDS[0]]
    said, missing = await trust(api, "gas-admission", NEW.chain, NOW)  # type: ignore[arg-type]
    assert len(said) == 1
    assert missing == [KINDS[0]]


async def test_another_refusal_is_an_error() -> None:
    class Closed(Api):
        async def request(self, method: str, path: str, **_: Any) -> bytes:
            raise ApiRefused(403, "Forbidden", f"{method} {path}")

    with pytest.raises(ApiRefused, match="Forbidden"):
        await trust(Closed(), "gas-admission", NEW.chain, NOW)  # type: ignore[arg-type]

"""Sign the certificates of the extender and of its client, and keep them in the Secrets that the chart made.

The chart's Job and CronJob run ``python -m configurator.cluster_certificates``. Certificates that are valid for 90 days
or more stay as they are.
"""

import argparse
import asyncio
import base64
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from configurator.certificates import (
    CLIENT_NAME,
    SERVER_NAME,
    Pair,
    decode_base64,
    end,
    lasts,
    mint_authority,
    read_pair,
    renewed,
)
from configurator.errors import BadCertificate, ConfiguratorError
from configurator.webhooks import trust
from gas.cluster.connection import ApiServer, connect
from gas.cluster.errors import ApiRefused
from gas.values.errors import GasError

CERTIFICATE, KEY, AUTHORITY = "tls.crt", "tls.key", "ca.crt"
TRIES = 5
_CONFLICT = 409

Data = Mapping[str, bytes]  # the content of a Secret, by key


Trust = Callable[[bytes, datetime], Awaitable[list[str]]]
"""Makes the admission webhooks trust an authority, and returns sentences about what is new."""


class Secrets:
    def __init__(self, api: ApiServer, namespace: str) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/secrets"

    async def get(self, name: str) -> tuple[Data, str]:
        """Return the content and the resourceVersion."""
        found = json.loads(await self._api.request("GET", f"{self._path}/{name}"))
        data = {key: decode_base64(text) for key, text in (found.get("data") or {}).items()}
        return data, found["metadata"]["resourceVersion"]

    async def put(self, name: str, version: str, data: Data) -> None:
        """Replace the content. Raises ApiRefused with status 409 if the Secret has changed since ``version``."""
        encoded = {key: base64.b64encode(content).decode() for key, content in data.items()}
        await self._api.request(
            "PATCH",
            f"{self._path}/{name}",
            body=json.dumps({"metadata": {"resourceVersion": version}, "data": encoded}).encode(),
            content_type="application/merge-patch+json",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    authority: str
    serving: str
    client: str
    names: Sequence[str]


async def renew(secrets: Secrets, wanted: Wanted, now: datetime, *, trust: Trust | None = None) -> list[str]:
    """Fill the Secrets and return sentences about what is new. Idempotent, also when two run at once.

    The authority is written first, so a second process finds it, or gets a conflict and starts again. The API server
    trusts it before the extender presents a certificate of it.
    """
    for _ in range(TRIES - 1):
        try:
            return await _renew_once(secrets, wanted, now, trust)
        except ApiRefused as refused:
            if refused.status != _CONFLICT:
                raise
    return await _renew_once(secrets, wanted, now, trust)


async def _renew_once(secrets: Secrets, wanted: Wanted, now: datetime, trust: Trust | None) -> list[str]:
    said: list[str] = []
    data, version = await secrets.get(wanted.authority)
    authority = _pair(wanted.authority, data, said)
    if authority is None or not authority.is_authority or not lasts(authority.certificate, now):
        authority = mint_authority(now)
        await secrets.put(wanted.authority, version, _data(authority))
        said.append(f"Secret {wanted.authority}: a new authority, valid until {end(authority)}")
    if trust is not None:
        said += await trust(authority.chain, now)
    for name, names, subject in ((wanted.serving, wanted.names, SERVER_NAME), (wanted.client, (), CLIENT_NAME)):
        data, version = await secrets.get(name)
        found = _pair(name, data, said)
        pair = renewed(found, authority, names, now, name=subject)
        if pair is not found:
            said.append(f"Secret {name}: a new certificate, valid until {end(pair)}")
        complete = {**_data(pair), AUTHORITY: authority.chain}
        if complete != data:
            await secrets.put(name, version, complete)
    return said


def _pair(name: str, data: Data, said: list[str]) -> Pair | None:
    """Return the pair in a Secret; None if there is none. If it cannot be used, add a sentence to ``said``."""
    if not data.get(CERTIFICATE) or not data.get(KEY):
        return None
    try:
        return read_pair(Path(name, CERTIFICATE), data[CERTIFICATE], Path(name, KEY), data[KEY])
    except BadCertificate as bad:
        said.append(f"the content of a Secret is replaced: {bad}")
        return None


def _data(pair: Pair) -> Data:
    return {CERTIFICATE: pair.chain, KEY: pair.key_text}


async def _run(namespace: str, wanted: Wanted, webhooks: str) -> list[str]:
    async with await connect(None, user_agent="gas-certificates") as api:

        async def trust_in_webhooks(authority: bytes, now: datetime) -> list[str]:
            changed, missing = await trust(api, webhooks, authority, now)
            if missing:
                raise ConfiguratorError(f"{missing[0]} {webhooks} does not exist yet; run this again")
            return changed

        chosen = trust_in_webhooks if webhooks else None
        return await renew(Secrets(api, namespace), wanted, datetime.now(UTC), trust=chosen)


def main() -> int:
    """Run the program and return its exit code: 0 if the Secrets are complete, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for flag in ("namespace", "authority", "serving", "client", "names"):
        parser.add_argument(f"--{flag}", required=True)
    parser.add_argument("--webhooks", default="", help="webhook configurations that must trust the authority")
    given = parser.parse_args()
    wanted = Wanted(authority=given.authority, serving=given.serving, client=given.client, names=given.names.split(","))
    try:
        said = asyncio.run(_run(given.namespace, wanted, given.webhooks))
    except GasError as error:
        sys.stderr.write(f"certificates: {error}\n")
        return 1
    sys.stdout.write("".join(f"{sentence}\n" for sentence in said or ["nothing to renew"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

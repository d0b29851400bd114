"""Where the API server is and who we are: from the service account in a cluster, else from a kubeconfig."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from gas.cluster.errors import NoCluster
from gas.cluster.login import Address, Login
from gas.cluster.service_account import CA_FILE, TOKEN_FILE, is_in_a_cluster, load_service_account

logger = logging.getLogger(__name__)

_FRESHEN_INTERVAL = 60.0
"""Seconds between looks at a token file or at the end of a token's life, as client-go does."""

_RENEW_INTERVAL = 10.0
"""Seconds at least between two complete readings after the API server said "unauthorized"."""

DEFAULT_KUBECONFIG = "~/.kube/config"


class Credentials:
    """The address of the API server and an authorization that is kept fresh.

    Tokens that rotate (service account, ``tokenFile``) are read again every minute, those with an end renewed
    before it. `renew` reads everything again, certificates too.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[Login]],
        login: Login,
        clock: Callable[[], float],
    ) -> None:
        self._load = load
        self._login = login
        self._authorization = login.authorization
        self._clock = clock
        self._freshened = clock()
        self._renewed: float | None = None
        self._lock = asyncio.Lock()

    @property
    def address(self) -> Address:
        return self._login.address

    async def authorization(self) -> str | None:
        """The value of the Authorization header, or None. A failure to freshen keeps the last value."""
        if self._clock() - self._freshened < _FRESHEN_INTERVAL:
            return self._authorization
        async with self._lock:
            if self._clock() - self._freshened >= _FRESHEN_INTERVAL:
                self._freshened = self._clock()
                try:
                    self._authorization = await self._login.freshen()
                except Exception:
                    logger.exception("cannot freshen the token for the API server; going on with the last one")
        return self._authorization

    async def renew(self) -> bool:
        """Read everything again after a refusal. False when that was tried just now, or did not work."""
        refused = self._login
        async with self._lock:
            if self._login is not refused:
                return True
            if self._renewed is not None and self._clock() - self._renewed < _RENEW_INTERVAL:
                return False
            self._renewed = self._freshened = self._clock()
            try:
                self._login = await self._load()
            except NoCluster as error:
                logger.warning("cannot read the credentials for the API server again: %s", error)
                return False
            self._authorization = self._login.authorization
            return True


async def find_credentials(
    kubeconfig: str | None,
    *,
    explicit: bool,
    environ: Mapping[str, str] = os.environ,
    token_file: str = TOKEN_FILE,
    ca_file: str = CA_FILE,
    clock: Callable[[], float] = time.monotonic,
) -> Credentials:
    """Choose in this order (contract E12.3), and read: a kubeconfig named explicitly; inside a cluster
    the service account; ``$KUBECONFIG``; ``kubeconfig``, which defaults to ~/.kube/config.

    Raises NoCluster when what is chosen is missing, unreadable or malformed.
    """
    if explicit and kubeconfig:
        return await _from(lambda: _load_kubeconfig(kubeconfig), clock)
    in_cluster = is_in_a_cluster(environ)
    if in_cluster and _existing(token_file):
        return await _from(lambda: _load_service_account(environ, token_file, ca_file), clock)
    paths = environ.get("KUBECONFIG") or kubeconfig or DEFAULT_KUBECONFIG
    if in_cluster and not _existing(paths):
        raise NoCluster(
            f"inside a cluster, but there is no service account token at {token_file} and no kubeconfig at "
            f"{paths}; set automountServiceAccountToken: true on the pod"
        )
    return await _from(lambda: _load_kubeconfig(paths), clock)


async def _from(load: Callable[[], Awaitable[Login]], clock: Callable[[], float]) -> Credentials:
    return Credentials(load, await load(), clock)


async def _load_service_account(environ: Mapping[str, str], token_file: str, ca_file: str) -> Login:
    return load_service_account(environ, Path(token_file), Path(ca_file))


async def _load_kubeconfig(paths: str) -> Login:
    if not (existing := _existing(paths)):
        raise NoCluster(
            f"kubeconfig {paths}: there is no such file; name one with --kubeConfig or $KUBECONFIG, or run in a cluster"
        )
    from gas.cluster.kubeconfig import load_kubeconfig  # brings the official client along

    return await load_kubeconfig(paths, existing)


def _existing(paths: str) -> list[Path]:
    """Those of the files, written as in $KUBECONFIG, that are there."""
    found = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
    return [path for path in found if path.exists()]

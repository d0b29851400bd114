"""Where the API server is and who we are: from the service account in a cluster, else from a kubeconfig."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from gas.cluster.errors import NoCluster

logger = logging.getLogger(__name__)

_FRESHEN_INTERVAL = 60.0
"""Seconds between looks at a token file or at the end of a token's life, as client-go does."""

_RENEW_INTERVAL = 10.0
"""Seconds at least between two complete readings after the API server said "unauthorized"."""

DEFAULT_KUBECONFIG = "~/.kube/config"


@dataclass(frozen=True, slots=True)
class Address:
    """How to reach the API server.

    url              ``https://host:port``, maybe with a path, without a slash at the end
    tls              verifies the server and holds the client certificate, if there is one
    server_hostname  the name to find in the server's certificate, when it is another than the URL's
    proxy            of the kubeconfig, or of HTTPS_PROXY and the like
    """

    url: str
    tls: ssl.SSLContext
    server_hostname: str | None
    proxy: str | None


@dataclass(frozen=True, slots=True)
class _Loaded:
    configuration: Configuration
    address: Address
    authorization: str | None
    freshen: Callable[[], Awaitable[None]]
    """Ask the library for a newer token; at most reads a file when there is nothing to do."""


class Credentials:
    """The address of the API server and an authorization that is kept fresh.

    Tokens that rotate (service account, ``tokenFile``) are read again every minute, those with an end renewed
    before it. `renew` reads everything again, certificates too.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[_Loaded]],
        loaded: _Loaded,
        clock: Callable[[], float],
    ) -> None:
        self._load = load
        self._loaded = loaded
        self._authorization = loaded.authorization
        self._clock = clock
        self._freshened = clock()
        self._renewed: float | None = None
        self._lock = asyncio.Lock()

    @property
    def address(self) -> Address:
        return self._loaded.address

    async def authorization(self) -> str | None:
        """The value of the Authorization header, or None. A failure to freshen keeps the last value."""
        if self._clock() - self._freshened < _FRESHEN_INTERVAL:
            return self._authorization
        async with self._lock:
            if self._clock() - self._freshened >= _FRESHEN_INTERVAL:
                self._freshened = self._clock()
                try:
                    await self._loaded.freshen()
                    self._authorization = _authorization(self._loaded.configuration)
                except Exception:
                    logger.exception("cannot freshen the token for the API server; going on with the last one")
        return self._authorization

    async def renew(self) -> bool:
        """Read everything again after a refusal. False when that was tried just now, or did not work."""
        refused = self._loaded
        async with self._lock:
            if self._loaded is not refused:
                return True
            if self._renewed is not None and self._clock() - self._renewed < _RENEW_INTERVAL:
                return False
            self._renewed = self._freshened = self._clock()
            try:
                self._loaded = await self._load()
            except NoCluster as error:
                logger.warning("cannot read the credentials for the API server again: %s", error)
                return False
            self._authorization = self._loaded.authorization
            return True


async def find_credentials(
    kubeconfig: str | None,
    *,
    explicit: bool,
    environ: Mapping[str, str] = os.environ,
    token_file: str = SERVICE_TOKEN_FILENAME,
    ca_file: str = SERVICE_CERT_FILENAME,
    clock: Callable[[], float] = time.monotonic,
) -> Credentials:
    """Choose in this order (gas-contract: HTTP), and read: a kubeconfig named explicitly; inside a cluster
    the service account; ``$KUBECONFIG``; ``kubeconfig``, which defaults to ~/.kube/config.

    Raises NoCluster when what is chosen is missing, unreadable or malformed.
    """
    if explicit and kubeconfig:
        return await _from(lambda: _load_kubeconfig(kubeconfig), clock)
    in_cluster = bool(environ.get("KUBERNETES_SERVICE_HOST") and environ.get("KUBERNETES_SERVICE_PORT"))
    if in_cluster and _existing(token_file):
        return await _from(lambda: _load_service_account(environ, token_file, ca_file), clock)
    paths = environ.get("KUBECONFIG") or kubeconfig or DEFAULT_KUBECONFIG
    if in_cluster and not _existing(paths):
        raise NoCluster(
            f"inside a cluster, but there is no service account token at {token_file} and no kubeconfig at "
            f"{paths}; set automountServiceAccountToken: true on the pod"
        )
    return await _from(lambda: _load_kubeconfig(paths), clock)


async def _from(load: Callable[[], Awaitable[_Loaded]], clock: Callable[[], float]) -> Credentials:
    return Credentials(load, await load(), clock)


async def _load_service_account(environ: Mapping[str, str], token_file: str, ca_file: str) -> _Loaded:
    configuration = Configuration()
    loader = InClusterConfigLoader(token_file, ca_file, try_refresh_token=False, environ=environ)

    async def read() -> None:
        loader.load_and_set(configuration)

    return await _loaded("the service account", configuration, read, freshen=read)


async def _load_kubeconfig(paths: str) -> _Loaded:
    where = f"kubeconfig {paths}"
    if not (existing := _existing(paths)):
        raise NoCluster(
            f"{where}: there is no such file; name one with --kubeConfig or $KUBECONFIG, or run in a cluster"
        )
    for path in existing:
        try:
            path.read_bytes()
        except OSError as error:
            raise NoCluster(f"kubeconfig {path}: cannot be read: {error.strerror}") from error
    configuration = Configuration()
    try:
        loader = KubeConfigLoader(config_dict=KubeConfigMerger(paths).config, config_base_path=None)
    except Exception as error:
        # What is no mapping at all makes the loader stumble rather than complain.
        found = "something else" if isinstance(error, (TypeError, AttributeError)) else _words(error)
        raise NoCluster(f"{where}: expected a kubeconfig with a current context, found: {found}") from error
    # The loader does not tell whether there is a user nor how it logs in; a plugin's errors it only logs.
    user = loader._user

    async def read() -> None:
        await loader.load_and_set(configuration)

    async def freshen() -> None:
        # A plugin that names no end for its token is asked again only when the token is refused.
        if user is not None and ("exec" not in user or hasattr(loader, "exec_plugin_expiry")):
            await read()

    if user is None and str(loader._cluster.safe_get("server") or "").startswith("https:"):
        raise NoCluster(f"{where}: its current context names no user, or one that is not there")
    loaded = await _loaded(where, configuration, read, freshen)
    if user is not None and "exec" in user and not (loaded.authorization or configuration.cert_file):
        command = str(user["exec"].safe_get("command"))
        raise NoCluster(f"{where}: the command {command!r} gave no credentials; its error is in the log")
    return loaded


async def _loaded(
    where: str,
    configuration: Configuration,
    read: Callable[[], Awaitable[None]],
    freshen: Callable[[], Awaitable[None]],
) -> _Loaded:
    # Go's clients, for which clusters make their certificates, do not ask for RFC 5280's every letter.
    configuration.disable_strict_ssl_verification = True
    try:
        await read()
        tls = RESTClientObject(configuration).ssl_context
        authorization = _authorization(configuration)
        url = str(configuration.host)
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise NoCluster(f"{where}: expected a server such as https://host:6443, found {url[:200]!r}")
    except NoCluster:
        raise
    except Exception as error:
        raise NoCluster(f"{where}: cannot be used: {_words(error)}") from error
    address = Address(
        url=url,
        tls=tls,
        server_hostname=configuration.tls_server_name,
        proxy=configuration.proxy or _environment_proxy(parts.scheme, parts.hostname),
    )
    return _Loaded(configuration, address, authorization, freshen)


def _authorization(configuration: Configuration) -> str | None:
    value = configuration.api_key.get("BearerToken")
    if value is None:
        return None
    text = str(value).strip()
    if not (text.isascii() and text.isprintable()):
        raise NoCluster("the token for the API server holds characters that no token has")
    return text


def _environment_proxy(scheme: str, host: str) -> str | None:
    """As Go reads the variables: a loopback address is never behind a proxy."""
    if host == "localhost" or host.startswith("127.") or host == "::1" or proxy_bypass(host):
        return None
    return getproxies().get(scheme)


def _existing(paths: str) -> list[Path]:
    """Those of the files, written as in $KUBECONFIG, that are there."""
    found = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
    return [path for path in found if path.exists()]


def _words(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

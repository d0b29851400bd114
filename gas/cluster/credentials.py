"""Find the API server and credentials for it: a pod's service account, else a kubeconfig."""

import asyncio
import logging
import os
import ssl
import stat
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from gas.cluster.errors import NoCluster

logger = logging.getLogger(__name__)

_REFRESH_INTERVAL = 60.0
"""Seconds between two readings of a token file, and between two checks whether a token expires; as client-go."""

_RENEW_INTERVAL = 10.0  # seconds at least between two complete readings after the API server responded 401

DEFAULT_KUBECONFIG = "~/.kube/config"
TOKEN_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 -- a path
CA_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
HOST = "KUBERNETES_SERVICE_HOST"
PORT = "KUBERNETES_SERVICE_PORT"

_SERVICE_ACCOUNT = "the service account"


@dataclass(frozen=True, slots=True)
class Address:
    url: str  # ``https://host:port``, maybe with a path, without a slash at the end
    tls: ssl.SSLContext  # verifies the server, and holds the client certificate if there is one
    server_hostname: str | None  # name to verify in the server's certificate, if it differs from the URL's
    proxy: str | None  # from the kubeconfig, or from HTTPS_PROXY and the like
    # the authorities that verify the server, their file or its content; None if those of the system do
    authority: str | bytes | None = None


@dataclass(frozen=True, slots=True)
class Login:
    address: Address
    authorization: str | None  # value of the Authorization header, or None
    # returns a newer value; does no more than read a file if the present one is still good
    refresh: Callable[[], Awaitable[str | None]]
    # headers that name the account that requests are made for, if it is another one
    impersonation: tuple[tuple[str, str], ...] = ()


def make_address(
    where: str,
    url: str,
    tls: ssl.SSLContext,
    *,
    authority: str | bytes | None,
    server_hostname: str | None = None,
    proxy: str | None = None,
) -> Address:
    """Return an address, with the environment's proxy if no other is given. ``where`` the URL was read is for errors.

    Raises NoCluster if the URL does not name a server, ValueError if it cannot be parsed.
    """
    # Clusters make their certificates for Go's clients, which do not enforce every rule of RFC 5280.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise NoCluster(f"{where}: expected a server such as https://host:6443, found {url[:200]!r}")
    proxy = proxy or _environment_proxy(parts.scheme, parts.hostname)
    return Address(url, tls, server_hostname, proxy, authority)


def header_value(text: str, what: str = "the token for the API server") -> str:
    """Return the text as the value of a header. Raises NoCluster with what it is if it cannot be one."""
    text = text.strip()
    if not (text.isascii() and text.isprintable()):
        raise NoCluster(f"{what} contains characters that a header cannot have")
    return text


def describe(error: Exception) -> str:
    """Return the text of another library's error, as the end of a sentence."""
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, (TypeError, AttributeError)):  # whose texts are about Python
        return "something of another form"
    text = error.strerror if isinstance(error, FileNotFoundError | PermissionError) else str(error)
    return " ".join((text or "").split())[:300] or "no details"


def _environment_proxy(scheme: str, host: str) -> str | None:
    """Return the proxy that the variables name, as Go reads them: never for a loopback address."""
    if host == "localhost" or host.startswith("127.") or host == "::1":
        return None
    if not any(name.lower() == f"{scheme}_proxy" for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass  # which takes as long as all of a command's own modules

    return None if proxy_bypass(host) else getproxies().get(scheme)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """The choices of a command line that replace those of a kubeconfig; empty where it makes none."""

    context: str = ""  # one of the kubeconfig's
    server: str = ""
    token: str = ""  # replaces all credentials of the kubeconfig's user
    user: str = ""  # that requests are made for, with ``groups``
    groups: tuple[str, ...] = ()

    def applied(self, login: Login) -> Login:
        """Return a login with what is said here. Raises NoCluster."""
        if self.server:
            old = login.address
            where, url = "flag --server", self.server.rstrip("/")
            address = make_address(where, url, old.tls, authority=old.authority, server_hostname=old.server_hostname)
            login = replace(login, address=replace(address, proxy=old.proxy))
        if self.token:
            authorization = header_value(f"Bearer {self.token}")

            async def unchanged() -> str:
                return authorization

            login = replace(login, authorization=authorization, refresh=unchanged)
        if self.user:
            headers = [("Impersonate-User", self.user), *(("Impersonate-Group", each) for each in self.groups)]
            account = "the account to act as"
            login = replace(login, impersonation=tuple((name, header_value(text, account)) for name, text in headers))
        return login


AS_CONFIGURED = Overrides()


class Credentials:
    """The address of the API server, and an authorization that is kept fresh.

    Tokens that rotate (service account, ``tokenFile``) are read again every minute; those that expire are renewed
    before they do. `renew` reads everything again, certificates too.
    """

    def __init__(self, load: Callable[[], Awaitable[Login]], login: Login, clock: Callable[[], float]) -> None:
        self._load = load
        self._login = login
        self._authorization = login.authorization
        self._clock = clock
        self._refreshed = clock()
        self._renewed: float | None = None
        self._lock = asyncio.Lock()

    @property
    def address(self) -> Address:
        return self._login.address

    @property
    def impersonation(self) -> tuple[tuple[str, str], ...]:
        return self._login.impersonation

    async def authorization(self) -> str | None:
        """Return the value of the Authorization header, or None. If it cannot be refreshed, the last value stays."""
        if self._clock() - self._refreshed < _REFRESH_INTERVAL:
            return self._authorization
        async with self._lock:
            if self._clock() - self._refreshed >= _REFRESH_INTERVAL:
                self._refreshed = self._clock()
                try:
                    self._authorization = await self._login.refresh()
                except Exception:
                    logger.exception("cannot refresh the token for the API server; the last one stays in use")
        return self._authorization

    async def renew(self) -> bool:
        """Read everything again after a refusal. Returns False if that was tried a moment ago, or failed."""
        refused = self._login
        async with self._lock:
            if self._login is not refused:
                return True
            if self._renewed is not None and self._clock() - self._renewed < _RENEW_INTERVAL:
                return False
            self._renewed = self._refreshed = self._clock()
            try:
                self._login = await self._load()
            except NoCluster as error:
                logger.warning("cannot read the credentials for the API server again: %s", error)
                return False
            self._authorization = self._login.authorization
            return True


async def find_credentials(
    kubeconfig: str | None,  # one that is named explicitly
    *,
    overrides: Overrides = AS_CONFIGURED,
    environ: Mapping[str, str] = os.environ,
    default: str = DEFAULT_KUBECONFIG,
    token_file: str = TOKEN_FILE,
    ca_file: str = CA_FILE,
    clock: Callable[[], float] = time.monotonic,
) -> Credentials:
    """Find and read the credentials.

    The first of these that applies is used (contract E12.3): a kubeconfig that is named explicitly; in a pod the
    service account; ``$KUBECONFIG``; ~/.kube/config.

    Raises NoCluster if the one that is used is missing, unreadable or malformed.
    """
    in_cluster = is_in_a_cluster(environ)
    has_account = not kubeconfig and in_cluster and bool(existing_files(token_file))
    paths = kubeconfig or environ.get("KUBECONFIG") or default

    async def load() -> Login:
        if has_account:
            return overrides.applied(await _load_service_account(environ, token_file, ca_file))
        return overrides.applied(await _load_kubeconfig(paths, overrides))

    if in_cluster and not kubeconfig and not has_account and not existing_files(paths):
        raise NoCluster(
            f"this is a pod, but there is no service account token at {token_file} and no kubeconfig at {paths}; "
            "set automountServiceAccountToken: true on the pod"
        )
    return Credentials(load, await load(), clock)


async def credentials_of(file: str, environ: Mapping[str, str], overrides: Overrides = AS_CONFIGURED) -> Credentials:
    """Find the credentials of a kubeconfig, or of the usual places. Files are checked before they are read.

    ``file`` may name several, written as in $KUBECONFIG. Raises NoCluster.
    """
    if not (file or overrides.context) and is_in_a_cluster(environ):
        return await find_credentials(None, environ=environ, overrides=overrides)
    paths = file or environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    if not existing_files(paths):
        raise NoCluster(f"kubeconfig {paths}: the file does not exist; name one with --kubeconfig or $KUBECONFIG")
    return await find_credentials(paths, environ=environ, overrides=overrides)


def kind_of(mode: int) -> str:
    """Name the kind of what is there instead of a file."""
    if stat.S_ISDIR(mode):
        return "a directory"
    return "a pipe" if stat.S_ISFIFO(mode) else "a device"


def is_in_a_cluster(environ: Mapping[str, str]) -> bool:
    return bool(environ.get(HOST) and environ.get(PORT))


async def _load_service_account(environ: Mapping[str, str], token_file: str, ca_file: str) -> Login:
    """Read the login of a pod. Its token file is read again to refresh the token. Raises NoCluster."""

    async def refresh() -> str:
        return _token(token_file)

    host = environ[HOST]
    url = f"https://[{host}]:{environ[PORT]}" if ":" in host else f"https://{host}:{environ[PORT]}"
    try:
        address = make_address(_SERVICE_ACCOUNT, url, ssl.create_default_context(cafile=ca_file), authority=ca_file)
    except (OSError, ValueError) as error:
        what = ca_file if isinstance(error, OSError) else f"{HOST} and {PORT}"  # OSError: the file, or TLS about it
        raise NoCluster(f"{_SERVICE_ACCOUNT}: cannot be used: {what}: {describe(error)}") from error
    return Login(address, _token(token_file), refresh)


def _token(file: str) -> str:
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NoCluster(f"{_SERVICE_ACCOUNT}: cannot be used: {file}: {describe(error)}") from error
    if not token:
        raise NoCluster(f"{_SERVICE_ACCOUNT}: cannot be used: {file} is empty")
    return header_value(f"Bearer {token}")


async def _load_kubeconfig(paths: str, overrides: Overrides) -> Login:
    if not (existing := existing_files(paths)):
        raise NoCluster(
            f"kubeconfig {paths}: the file does not exist; name one with --kubeConfig or $KUBECONFIG, or run this in a "
            "cluster"
        )
    from gas.cluster.plain_kubeconfig import UNUSABLE, plain_login  # a daemon in a pod does without it

    with suppress(*UNUSABLE):
        return await plain_login(existing, overrides.context, anonymous=bool(overrides.token))
    from gas.cluster.kubeconfig import load_kubeconfig  # which imports the official client

    return await load_kubeconfig(paths, overrides.context, anonymous=bool(overrides.token))


def existing_files(paths: str) -> list[Path]:
    """Return those of the files that exist. ``paths`` is written as in $KUBECONFIG.

    Raises NoCluster, also for a pipe or a device, which cannot be read twice or never ends.
    """
    files: list[Path] = []
    for path in filter(None, paths.split(os.pathsep)):
        try:
            mode = (file := Path(path).expanduser()).stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, RuntimeError) as error:  # RuntimeError: that user's home directory is unknown
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise NoCluster(f"kubeconfig {path}: cannot be read: {why}") from error
        if not stat.S_ISREG(mode):
            raise NoCluster(f"kubeconfig {path}: expected a file, found {kind_of(mode)}")
        files.append(file)
    return files

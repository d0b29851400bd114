"""Values that say how to reach an API server, and as which user."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from gas.cluster.errors import NoCluster


@dataclass(frozen=True, slots=True)
class Address:
    """The address of the API server.

    url              ``https://host:port``, maybe with a path, without a slash at the end
    tls              verifies the server, and holds the client certificate if there is one
    server_hostname  name to verify in the server's certificate, if it differs from the URL's
    proxy            from the kubeconfig, or from HTTPS_PROXY and the like
    """

    url: str
    tls: ssl.SSLContext
    server_hostname: str | None
    proxy: str | None


@dataclass(frozen=True, slots=True)
class Login:
    """An address and the credentials for it.

    authorization  value of the Authorization header, or None
    refresh        returns a newer value; does no more than read a file if the present one is still good
    """

    address: Address
    authorization: str | None
    refresh: Callable[[], Awaitable[str | None]]


def make_address(
    where: str, url: str, tls: ssl.SSLContext, *, server_hostname: str | None = None, proxy: str | None = None
) -> Address:
    """Return an address, with the environment's proxy if no other is given.

    where  where the URL was read, for errors

    Raises NoCluster if the URL does not name a server, ValueError if it cannot be parsed.
    """
    # Clusters make their certificates for Go's clients, which do not enforce every rule of RFC 5280.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise NoCluster(f"{where}: expected a server such as https://host:6443, found {url[:200]!r}")
    return Address(url, tls, server_hostname, proxy or _environment_proxy(parts.scheme, parts.hostname))


def authorization_header(text: str) -> str:
    """Return the text as the value of a header. Raises NoCluster if it cannot be one."""
    text = text.strip()
    if not (text.isascii() and text.isprintable()):
        raise NoCluster("the token for the API server contains characters that a token cannot have")
    return text


def describe(error: Exception) -> str:
    """Return class and text of another library's error, as the end of a sentence."""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _environment_proxy(scheme: str, host: str) -> str | None:
    """Return the proxy that the variables name, as Go reads them: never for a loopback address."""
    if host == "localhost" or host.startswith("127.") or host == "::1" or proxy_bypass(host):
        return None
    return getproxies().get(scheme)

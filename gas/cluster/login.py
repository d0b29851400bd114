"""How to reach an API server and who we are there, wherever that was read from."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from gas.cluster.errors import NoCluster


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
class Login:
    """What was read.

    authorization  the value of the Authorization header, or None
    freshen        a newer one; at most reads a file when there is nothing to do
    """

    address: Address
    authorization: str | None
    freshen: Callable[[], Awaitable[str | None]]


def make_address(
    where: str, url: str, tls: ssl.SSLContext, *, server_hostname: str | None = None, proxy: str | None = None
) -> Address:
    """The address with the environment's proxy when there is no other.

    where  begins the error: what was read

    Raises NoCluster when this is no URL of a server, ValueError when it is no URL at all.
    """
    # Go's clients, for which clusters make their certificates, do not ask for RFC 5280's every letter.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise NoCluster(f"{where}: expected a server such as https://host:6443, found {url[:200]!r}")
    return Address(url, tls, server_hostname, proxy or _environment_proxy(parts.scheme, parts.hostname))


def authorization_header(text: str) -> str:
    """The text as a header's value. Raises NoCluster when it cannot be one."""
    text = text.strip()
    if not (text.isascii() and text.isprintable()):
        raise NoCluster("the token for the API server holds characters that no token has")
    return text


def words_of(error: Exception) -> str:
    """Kind and text of an error of somebody else's, as the end of a sentence."""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _environment_proxy(scheme: str, host: str) -> str | None:
    """As Go reads the variables: a loopback address is never behind a proxy."""
    if host == "localhost" or host.startswith("127.") or host == "::1" or proxy_bypass(host):
        return None
    return getproxies().get(scheme)

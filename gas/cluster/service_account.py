"""Who a pod is in its cluster: the files and variables that Kubernetes gives it.

They are read here and not by the official client, whose import alone weighs more than all of our own: 20 MB in each
daemon of each node, and all that a pod needs of it would be these few lines.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from gas.cluster.errors import NoCluster
from gas.cluster.login import Login, authorization_header, make_address, words_of

TOKEN_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 -- a path
CA_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"

HOST = "KUBERNETES_SERVICE_HOST"
PORT = "KUBERNETES_SERVICE_PORT"

_WHERE = "the service account"


def is_in_a_cluster(environ: Mapping[str, str]) -> bool:
    """Whether this is a pod."""
    return bool(environ.get(HOST) and environ.get(PORT))


def load_service_account(environ: Mapping[str, str], token_file: Path, ca_file: Path) -> Login:
    """The login of a pod, in whose environment it `is_in_a_cluster`. The token is read again to freshen it.

    Raises NoCluster.
    """

    async def freshen() -> str:
        return _authorization(token_file)

    host = environ[HOST]
    url = f"https://[{host}]:{environ[PORT]}" if ":" in host else f"https://{host}:{environ[PORT]}"
    try:
        address = make_address(_WHERE, url, ssl.create_default_context(cafile=ca_file))
    except OSError as error:  # of the file, or of TLS about what is in it
        raise NoCluster(f"{_WHERE}: cannot be used: {ca_file}: {words_of(error)}") from error
    except ValueError as error:
        raise NoCluster(f"{_WHERE}: cannot be used: {HOST} and {PORT}: {words_of(error)}") from error
    return Login(address, _authorization(token_file), freshen)


def _authorization(token_file: Path) -> str:
    try:
        token = token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NoCluster(f"{_WHERE}: cannot be used: {token_file}: {words_of(error)}") from error
    if not token:
        raise NoCluster(f"{_WHERE}: cannot be used: {token_file} is empty")
    return authorization_header(f"Bearer {token}")

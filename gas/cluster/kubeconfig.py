"""Kubeconfigs, with all their ways to log in, as the official client reads them.

Imported only where there is one: see `gas.cluster.service_account`.
"""

from __future__ import annotations

from pathlib import Path

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from gas.cluster.errors import NoCluster
from gas.cluster.login import Login, authorization_header, make_address, words_of


async def load_kubeconfig(paths: str, existing: list[Path]) -> Login:
    """The login of the current context.

    paths     one or several files, written as in $KUBECONFIG
    existing  those that are there

    Raises NoCluster.
    """
    where = f"kubeconfig {paths}"
    for path in existing:
        try:
            path.read_bytes()
        except OSError as error:
            raise NoCluster(f"kubeconfig {path}: cannot be read: {error.strerror}") from error
    try:
        loader = KubeConfigLoader(config_dict=KubeConfigMerger(paths).config, config_base_path=None)
    except Exception as error:
        # What is no mapping at all makes the loader stumble rather than complain.
        found = "something else" if isinstance(error, (TypeError, AttributeError)) else words_of(error)
        raise NoCluster(f"{where}: expected a kubeconfig with a current context, found: {found}") from error
    # The loader does not tell whether there is a user nor how it logs in; a plugin's errors it only logs.
    user = loader._user
    if user is None and str(loader._cluster.safe_get("server") or "").startswith("https:"):
        raise NoCluster(f"{where}: its current context names no user, or one that is not there")
    configuration = Configuration()
    login = await _login(where, configuration, loader)
    if user is not None and "exec" in user and not (login.authorization or configuration.cert_file):
        command = str(user["exec"].safe_get("command"))
        raise NoCluster(f"{where}: the command {command!r} gave no credentials; its error is in the log")
    return login


async def _login(where: str, configuration: Configuration, loader: KubeConfigLoader) -> Login:
    user = loader._user

    async def freshen() -> str | None:
        # A plugin that names no end for its token is asked again only when the token is refused.
        if user is not None and ("exec" not in user or hasattr(loader, "exec_plugin_expiry")):
            await loader.load_and_set(configuration)
        return _authorization(configuration)

    try:
        await loader.load_and_set(configuration)
        address = make_address(
            where,
            str(configuration.host),
            RESTClientObject(configuration).ssl_context,
            server_hostname=configuration.tls_server_name,
            proxy=configuration.proxy,
        )
        return Login(address, _authorization(configuration), freshen)
    except NoCluster:
        raise
    except Exception as error:
        raise NoCluster(f"{where}: cannot be used: {words_of(error)}") from error


def _authorization(configuration: Configuration) -> str | None:
    value = configuration.api_key.get("BearerToken")
    return None if value is None else authorization_header(str(value))

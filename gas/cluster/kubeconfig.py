"""Read a kubeconfig, with every way to log in that the official client supports.

Import this only for a kubeconfig that is not plain: the official client takes 20 MB of memory and most of a second.
"""

import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import Any

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from gas.cluster.credentials import Login, describe, header_value, make_address
from gas.cluster.errors import NoCluster
from gas.cluster.plain_kubeconfig import content_of, impersonation

_logger = logging.getLogger("kubernetes.aio.config.kube_config")


def _merged(paths: str) -> Any:
    """Merge files as kubectl does: the first that names a current context decides, and empty ones do not count."""
    found = {path: Path(path).expanduser() for path in paths.split(os.pathsep)}
    files = [path for path, file in found.items() if file.exists() and content_of(file).strip()]
    merged = KubeConfigMerger(os.pathsep.join(files)).config
    if len(files) > 1:
        currents = (KubeConfigMerger(path).config.value.get("current-context") for path in files)
        merged.value["current-context"] = next(filter(None, currents), None)
    return merged


def read_contexts(paths: str) -> tuple[str, Mapping[str, Mapping[str, Any]]]:
    """Return the name of the current context, and all contexts. Raises NoCluster."""
    try:
        merged = _merged(paths)
        contexts = {str(each["name"]): each.value["context"] or {} for each in merged.safe_get("contexts") or ()}
        return str(merged.safe_get("current-context") or ""), contexts
    except NoCluster:
        raise
    except Exception as error:
        raise NoCluster(f"kubeconfig {paths}: expected a kubeconfig, found: {describe(error)}") from error


async def load_kubeconfig(paths: str, context: str = "", *, anonymous: bool = False) -> Login:
    """Return the login of a context, empty for the current one. Raises NoCluster.

    paths      one or several files, written as in $KUBECONFIG
    anonymous  whether the user's credentials are left out, because the caller has others
    """
    where = f"kubeconfig {paths}" + (f" with --context={context}" if context else "")
    try:
        merged = _merged(paths)
        chosen = merged["contexts"].get_with_name(context or merged["current-context"])["context"]
        user = _user(merged, chosen.safe_get("user"))
        account = tuple(impersonation(user.value if user is not None else {}))
        if anonymous:
            user, chosen.value["user"] = None, "unused"
            merged.value["users"] = [{"name": "unused", "user": {}}]  # for https the loader needs a user
        loader = KubeConfigLoader(config_dict=merged, config_base_path=None, active_context=context or None)
        if user is not None and "exec" in user:
            command = user["exec"].value.get("command")
            # A relative path starts at the folder of the kubeconfig, as for kubectl.
            if isinstance(command, str) and "/" in command and not Path(command).is_absolute():
                user["exec"].value["command"] = str(Path(user.path).parent / command)
        server = merged["clusters"].get_with_name(chosen["cluster"])["cluster"].safe_get("server")
    except NoCluster:
        raise
    except Exception as error:
        # For a document that is not a mapping the loader raises one of these two, with a useless text.
        found = "another document" if isinstance(error, (TypeError, AttributeError)) else describe(error)
        raise NoCluster(
            f"{where}: expected a kubeconfig with a current context, found: {found}; kubectl config get-contexts shows "
            "the contexts of a kubeconfig"
        ) from error
    if user is None and not anonymous and str(server or "").startswith("https:"):
        raise NoCluster(f"{where}: its current context names no user, or one that does not exist")
    configuration = Configuration()
    said: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        said.append(record.getMessage())
        return False

    _logger.addFilter(keep)  # the loader only logs the errors of a plugin
    try:
        login = replace(await _login(where, configuration, loader, user), impersonation=account)
    finally:
        _logger.removeFilter(keep)
    if user is not None and "exec" in user and not (login.authorization or configuration.cert_file):
        command, hint = (str(user["exec"].safe_get(key) or "") for key in ("command", "installHint"))
        if which(command) is None:
            install = " ".join(hint.split()) or "install it, or correct the kubeconfig"
            raise NoCluster(f"{where}: the command {command!r}, which logs in, was not found; {install}")
        why = describe(Exception(said[-1])) if said else "no details"
        raise NoCluster(f"{where}: the command {command!r}, which logs in, returned no credentials: {why}")
    return login


def _user(merged: Any, name: str | None) -> Any:
    """Return what a kubeconfig says of a user, None if it has no such user."""
    found = merged["users"].get_with_name(name, safe=True) if name and merged.safe_get("users") else None
    return found["user"] if found else None


async def _login(where: str, configuration: Configuration, loader: KubeConfigLoader, user: Any) -> Login:
    async def refresh() -> str | None:
        # A plugin whose token has no expiry is run again only when the token is refused.
        if user is not None and ("exec" not in user or hasattr(loader, "exec_plugin_expiry")):
            await loader.load_and_set(configuration)
        return _authorization(configuration)

    try:
        await loader.load_and_set(configuration)
        address = make_address(
            where,
            str(configuration.host),
            RESTClientObject(configuration).ssl_context,
            authority=configuration.ssl_ca_cert,
            server_hostname=configuration.tls_server_name,
            proxy=configuration.proxy,
        )
        return Login(address, _authorization(configuration), refresh)
    except NoCluster:
        raise
    except ssl.SSLError as error:
        raise NoCluster(
            f"{where}: cannot be used: a certificate or key in it is not valid PEM, or they do not belong together: "
            f"{describe(error)}"
        ) from error
    except FileNotFoundError as error:
        raise NoCluster(f"{where}: cannot be used: {error.filename}: {describe(error)}") from error
    except Exception as error:
        raise NoCluster(f"{where}: cannot be used: {describe(error)}") from error


def _authorization(configuration: Configuration) -> str | None:
    value = configuration.api_key.get("BearerToken")
    return None if value is None else header_value(str(value))

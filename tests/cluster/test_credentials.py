from __future__ import annotations

import asyncio
import json
import os
import ssl
import stat
import subprocess
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gas.cluster.credentials import Credentials, Login, Overrides, find_credentials
from gas.cluster.errors import NoCluster
from gas.cluster.kubeconfig import load_kubeconfig, read_contexts
from gas.cluster.plain_kubeconfig import plain_login
from sandbox.certificates import Authority
from sandbox.programs import write_kubeconfig
from tests.cluster.certificates import serving_context
from tests.cluster.moved_clock import Clock

IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


class Machine:
    """A machine with a service account, a default kubeconfig and one named by $KUBECONFIG, each if wanted."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.environ: dict[str, str] = {}
        self.token = directory / "token"
        self.ca, _ = serving_context(directory, "test-ca")
        self.default = directory / "default"
        self.directory = directory

    def put_in_a_cluster(self) -> None:
        self.environ |= IN_CLUSTER
        self.token.write_text("account\n")

    def has_default_kubeconfig(self) -> None:
        write_kubeconfig(self.default, "http://default:8080")

    def has_kubeconfig_variable(self) -> None:
        path = write_kubeconfig(self.directory / "variable", "http://variable:8080")
        self.environ["KUBECONFIG"] = f"/nowhere/config:{path}"

    async def find(self, kubeconfig: Path | str | None = None) -> Credentials:
        return await find_credentials(
            None if kubeconfig is None else str(kubeconfig),
            environ=self.environ,
            default=str(self.default),
            token_file=str(self.token),
            ca_file=str(self.ca),
            clock=self.clock,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# contract E12.3
async def test_an_explicit_kubeconfig_comes_first(machine: Machine) -> None:
    machine.put_in_a_cluster()
    machine.has_kubeconfig_variable()
    explicit = write_kubeconfig(machine.directory / "explicit", "http://explicit:8080")
    assert (await machine.find(explicit)).address.url == "http://explicit:8080"


# contract E12.3
async def test_a_pod_uses_its_service_account_and_other_programs_a_kubeconfig(machine: Machine) -> None:
    machine.put_in_a_cluster()
    machine.has_kubeconfig_variable()
    machine.has_default_kubeconfig()
    credentials = await machine.find()
    assert credentials.address.url == "https://10.96.0.1:443"
    assert str(credentials.address.authority).endswith("ca.crt")
    assert (await credentials.authorization() or "").lower() == "bearer account"
    assert [ca["subject"] for ca in credentials.address.tls.get_ca_certs()] == [((("commonName", "test-ca"),),)]
    assert credentials.address.tls.verify_mode == ssl.CERT_REQUIRED
    # On by default from Python 3.13 on; authorities of many clusters would fail it, and Go's clients do not ask.
    assert not credentials.address.tls.verify_flags & ssl.VERIFY_X509_STRICT


# contract E12.3
async def test_outside_a_cluster_the_variable_comes_before_the_default(machine: Machine) -> None:
    machine.has_default_kubeconfig()
    assert (await machine.find()).address.url == "http://default:8080"
    machine.has_kubeconfig_variable()
    assert (await machine.find()).address.url == "http://variable:8080"


async def test_a_pod_without_a_token_uses_a_kubeconfig(machine: Machine) -> None:
    machine.environ |= IN_CLUSTER
    machine.has_default_kubeconfig()
    assert (await machine.find()).address.url == "http://default:8080"


async def test_a_pod_without_token_and_kubeconfig_gets_a_sentence_with_the_remedy(machine: Machine) -> None:
    machine.environ |= IN_CLUSTER
    with pytest.raises(NoCluster, match="automountServiceAccountToken"):
        await machine.find()


async def test_a_service_account_needs_a_readable_ca(machine: Machine) -> None:
    machine.put_in_a_cluster()
    machine.ca.write_text("no certificate")
    with pytest.raises(NoCluster, match=f"the service account: cannot be used: {machine.ca}"):
        await machine.find()
    machine.ca.unlink()
    with pytest.raises(NoCluster, match=f"the service account: cannot be used: {machine.ca}: No such file"):
        await machine.find()


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        pytest.param(b"", "token is empty", id="empty"),
        pytest.param(b" \n", "token is empty", id="blank"),
        pytest.param(b"a\nb", "characters that a header cannot have", id="of-two-lines"),
        pytest.param(b"\xff\xfe", "cannot be used", id="no-text"),
    ],
)
async def test_a_service_account_needs_a_usable_token(machine: Machine, token: bytes, sentence: str) -> None:
    machine.put_in_a_cluster()
    machine.token.write_bytes(token)
    with pytest.raises(NoCluster, match=sentence):
        await machine.find()


@pytest.mark.parametrize(
    ("host", "port", "url"),
    [
        pytest.param("10.96.0.1", "6443", "https://10.96.0.1:6443", id="ipv4"),
        pytest.param("fd00::1", "443", "https://[fd00::1]:443", id="ipv6"),
        pytest.param("api.example.org", "443", "https://api.example.org:443", id="name"),
    ],
)
async def test_the_address_comes_from_the_pods_variables(machine: Machine, host: str, port: str, url: str) -> None:
    machine.put_in_a_cluster()
    machine.environ |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    assert (await machine.find()).address.url == url


@pytest.mark.parametrize(
    ("host", "port"), [pytest.param("h", "x", id="port-no-number"), pytest.param("[", "1", id="host-no-name")]
)
async def test_an_invalid_address_is_refused(machine: Machine, host: str, port: str) -> None:
    machine.put_in_a_cluster()
    machine.environ |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    with pytest.raises(NoCluster, match="KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT"):
        await machine.find()


def test_a_pod_does_not_import_the_official_client() -> None:
    """It would take more memory than everything else of a daemon."""
    script = (
        "import sys, gas.cluster.connection, gas.plugin.program\n"
        "assert 'kubernetes' not in sys.modules\n"
        "import gas.cluster.kubeconfig\n"
        "assert 'kubernetes' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_command_with_a_plain_kubeconfig_does_not_import_the_official_client(tmp_path: Path) -> None:
    """It would take longer than everything else that the command does."""
    path = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1", token="t")
    script = (
        "import sys\nfrom gas.commands import run\n"
        f"assert run(['pods', '--kubeconfig={path}']) == 3\n"
        "assert 'kubernetes' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def change(**top: object) -> Callable[[dict[str, object]], object]:
    return lambda config: config | top


def cluster(**fields: object) -> Callable[[dict[str, object]], object]:
    return change(clusters=[{"name": "sandbox", "cluster": fields}])


def user(**fields: object) -> Callable[[dict[str, object]], object]:
    return change(users=[{"name": "sandbox", "user": fields}])


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        pytest.param(lambda config: [], "expected a kubeconfig with a current context", id="a-list"),
        pytest.param(
            lambda config: None,
            "expected a kubeconfig with a current context, found: another document; kubectl config get-contexts",
            id="an-empty-file",
        ),
        pytest.param(lambda config: "text", "expected a kubeconfig with a current context", id="a-text"),
        pytest.param(change(**{"current-context": ""}), "current context", id="no-current-context"),
        pytest.param(change(**{"current-context": "x"}), "Expected object with name x", id="context-not-there"),
        pytest.param(change(contexts=7), "expected a kubeconfig", id="contexts-no-list"),
        pytest.param(change(clusters=[]), "Expected object with name sandbox", id="cluster-not-there"),
        pytest.param(cluster(), "expected a server such as https://host:6443", id="no-server"),
        pytest.param(cluster(server="6443"), "expected a server such as https://host:6443", id="server-no-url"),
        pytest.param(cluster(server="http://[::1"), "cannot be used", id="server-malformed"),
        pytest.param(cluster(server="https://h", **{"certificate-authority": "/no/ca"}), "/no/ca", id="ca-not-there"),
        pytest.param(
            cluster(server="https://h", **{"certificate-authority-data": "AAAA"}),
            "a certificate or key in it is not valid PEM",
            id="ca-broken",
        ),
        pytest.param(user(tokenFile="/no/token"), "/no/token", id="token-file-not-there"),
        pytest.param(user(token="a\nb"), "characters that a header cannot have", id="token-of-two-lines"),
        pytest.param(
            user(exec={"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/plugin"}),
            "the command '/no/plugin', which logs in, was not found; install it, or correct the kubeconfig",
            id="plugin-not-there",
        ),
        pytest.param(
            user(exec={"apiVersion": "v1", "command": "no-plugin", "installHint": "get it\nfrom https://example.com"}),
            "the command 'no-plugin', which logs in, was not found; get it from https://example.com",
            id="hint-to-install",
        ),
        pytest.param(
            user(exec={"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}),
            "the command 'false', which logs in, returned no credentials: exec: process returned 1",
            id="plugin-failed",
        ),
    ],
)
async def test_an_unusable_kubeconfig_is_named_with_the_reason(
    machine: Machine, spoil: Callable[[dict[str, object]], object], sentence: str
) -> None:
    path = write_kubeconfig(machine.default, "http://h", token="t")
    path.write_text(json.dumps(spoil(json.loads(path.read_text()))))
    with pytest.raises(NoCluster) as caught:
        await machine.find()
    assert str(caught.value).startswith(f"kubeconfig {path}: ") or "characters" in sentence
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(user(), id="no-credentials"),
        pytest.param(user(token="secret"), id="token"),
        pytest.param(user(tokenFile="token"), id="token-file"),
        pytest.param(user(token="", tokenFile="token"), id="empty-token"),
        pytest.param(user(**{"client-certificate": "jane.crt", "client-key": "jane.key"}), id="certificate"),
        pytest.param(user(token="secret", **{"as": "joe", "as-groups": ["dev"]}), id="acting"),
        pytest.param(cluster(server="http://h:8080/"), id="without-tls"),
        pytest.param(cluster(server="https://h/a/", **{"insecure-skip-tls-verify": True}), id="insecure"),
        pytest.param(cluster(server="https://h", **{"certificate-authority": "ca.crt"}), id="authority"),
        pytest.param(
            cluster(server="https://h", **{"tls-server-name": "other", "proxy-url": "http://p:1"}), id="other-name"
        ),
    ],
)
async def test_a_plain_kubeconfig_is_read_as_the_official_client_reads_it(
    tmp_path: Path, changed: Callable[[dict[str, object]], object]
) -> None:
    Authority(tmp_path, "ca").client("jane")
    (tmp_path / "token").write_text("of a file")
    path = write_kubeconfig(tmp_path / "config", "https://h", ca=tmp_path / "ca.crt")
    path.write_text(json.dumps(changed(json.loads(path.read_text()))))
    plain, official = await plain_login([path]), await load_kubeconfig(str(path))

    def facts(login: Login) -> tuple[object, ...]:
        found = login.address
        trusted = found.authority and [each["serialNumber"] for each in found.tls.get_ca_certs()]
        checks = found.tls.verify_mode, found.tls.check_hostname, found.tls.minimum_version, trusted
        return found.url, found.server_hostname, found.proxy, checks, login.authorization, login.impersonation

    assert facts(plain) == facts(official)


async def test_a_certificate_in_a_plain_kubeconfig_must_belong_to_its_key(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    held = {name: b64encode(authority.client(name).certificate.read_bytes()).decode() for name in ("jane", "joe")}
    keys = {name: b64encode((tmp_path / f"{name}.key").read_bytes()).decode() for name in held}
    for name in held:
        pair = {"client-certificate-data": held["jane"], "client-key-data": keys[name]}
        path = write_kubeconfig(tmp_path / "config", "https://h", ca=(tmp_path / "ca.crt").read_bytes(), **pair)
        with nullcontext() if name == "jane" else pytest.raises(ssl.SSLError):
            assert (await plain_login([path])).address.authority == (tmp_path / "ca.crt").read_bytes()


async def test_clusters_may_share_a_login_by_aliases(machine: Machine) -> None:
    users = "".join(f"- {{name: u{number}, user: *login}}\n" for number in range(20))
    machine.default.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u19}}]\n"
        "clusters: [{name: c, cluster: {server: http://h}}]\nusers:\n- {name: u, user: &login {token: t}}\n" + users
    )
    assert await (await machine.find()).authorization() == "Bearer t"


async def test_https_without_a_user_is_named(machine: Machine) -> None:
    path = write_kubeconfig(machine.default, "https://h")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"users": []}))
    with pytest.raises(NoCluster, match="its current context names no user"):
        await machine.find()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        pytest.param(lambda path: None, "the file does not exist", id="missing"),
        pytest.param(lambda path: path.mkdir(), "expected a file, found a directory", id="a-directory"),
        pytest.param(os.mkfifo, "expected a file, found a pipe", id="a-pipe"),
        pytest.param(lambda path: path.write_text("a: [b"), "expected a kubeconfig", id="no-yaml"),
        pytest.param(lambda path: path.write_text("a: " + "[" * 3000), "expected a kubeconfig", id="deep"),
        pytest.param(
            lambda path: path.write_text(f"a: &a {{}}\nb: &b [{'*a, ' * 9}]\nc: [{'*b, ' * 10}]"),
            "at most 100 times",
            id="bomb",
        ),
        pytest.param(lambda path: path.write_text("a: !!int ''"), "expected a kubeconfig", id="no-number"),
        pytest.param(lambda path: path.write_text("a: !!bool x"), "expected a kubeconfig", id="no-truth"),
        pytest.param(lambda path: path.write_bytes(b"\xff\xfe\x00"), "expected a kubeconfig", id="no-text"),
    ],
)
async def test_a_file_that_is_not_a_kubeconfig_is_named(
    machine: Machine, make: Callable[[Path], object], sentence: str
) -> None:
    make(machine.default)
    with pytest.raises(NoCluster, match=sentence) as caught:
        await machine.find(machine.default)
    assert str(machine.default) in str(caught.value)


def test_contexts_of_a_file_that_cannot_be_read_name_it_once(tmp_path: Path) -> None:
    with pytest.raises(NoCluster, match=f"^kubeconfig {tmp_path}: cannot be read: Is a directory$"):
        read_contexts(str(tmp_path))


async def test_a_name_and_a_password_are_sent_as_basic_authorization(machine: Machine) -> None:
    write_kubeconfig(machine.default, "http://h", username="jane", password="p:w")
    assert await (await machine.find()).authorization() == "Basic amFuZTpwOnc="


async def test_a_certificate_of_a_file_or_of_a_command_is_presented(machine: Machine, tmp_path: Path) -> None:
    files = Authority(tmp_path, "clients").client("jane")
    names = {"client-certificate": files.certificate.name, "client-key": files.key.name}
    write_kubeconfig(machine.default, "https://h", ca=machine.ca, **names)  # from the kubeconfig's folder on
    assert (await machine.find()).address.tls.verify_mode == ssl.CERT_REQUIRED
    status = {"clientCertificateData": files.certificate.read_text(), "clientKeyData": files.key.read_text()}
    printed = json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})
    (tmp_path / "plugin").write_text(f"#!/bin/sh\ncat <<'END'\n{printed}\nEND\n")
    (tmp_path / "plugin").chmod(stat.S_IRWXU)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin"}
    write_kubeconfig(machine.default, "https://h", ca=machine.ca, exec=command)
    assert await (await machine.find()).authorization() is None


async def test_of_entries_with_one_name_the_first_counts(machine: Machine) -> None:
    first = write_kubeconfig(machine.directory / "first", "http://first")
    second = write_kubeconfig(machine.directory / "second", "http://second", token="second")
    first.write_text(json.dumps(json.loads(first.read_text()) | {"users": None}))
    credentials = await machine.find(f"{first}:{second}")
    assert (credentials.address.url, await credentials.authorization()) == ("http://first", "Bearer second")


async def test_a_command_line_replaces_what_the_kubeconfig_says(machine: Machine) -> None:
    acting: dict[str, Any] = {"as": "jane", "as-groups": ["dev"], "exec": {"command": "/no/plugin"}}
    write_kubeconfig(machine.default, "http://h", **acting)
    said = Overrides(server="http://other:1/", token="given", user="joe", groups=("ops",))
    credentials = await find_credentials(str(machine.default), overrides=said)
    assert credentials.address.url == "http://other:1"
    assert await credentials.authorization() == "Bearer given"
    assert credentials.impersonation == (("Impersonate-User", "joe"), ("Impersonate-Group", "ops"))


async def rotate_service_account(machine: Machine) -> tuple[Credentials, Callable[[], object]]:
    machine.put_in_a_cluster()
    return await machine.find(), lambda: machine.token.write_text("new")


async def rotate_token_file(machine: Machine) -> tuple[Credentials, Callable[[], object]]:
    machine.token.write_text("account")
    write_kubeconfig(machine.default, "http://h", tokenFile=str(machine.token))
    return await machine.find(), lambda: machine.token.write_text("new")


async def expire_plugin_token(machine: Machine) -> tuple[Credentials, Callable[[], object]]:
    write_plugin(machine, "account", expires=datetime.now(UTC) + timedelta(minutes=1))
    return await machine.find(), lambda: write_plugin(machine, "new")


def write_plugin(machine: Machine, token: str, expires: datetime | None = None) -> None:
    status = {"token": token} | ({"expirationTimestamp": expires.isoformat()} if expires else {})
    api_version = "client.authentication.k8s.io/v1"
    credential = {"apiVersion": api_version, "kind": "ExecCredential", "status": status}
    plugin = machine.directory / "plugin"
    calls = machine.directory / "calls"
    plugin.write_text(f"#!/bin/sh\necho call >>{calls}\necho '{json.dumps(credential)}'\n")
    plugin.chmod(stat.S_IRWXU)
    write_kubeconfig(machine.default, "http://h", exec={"apiVersion": api_version, "command": str(plugin)})


async def test_a_relative_command_starts_at_the_folder_of_the_kubeconfig(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin(machine, "account")
    written = machine.default.read_text().replace(str(machine.directory / "plugin"), "./plugin")
    machine.default.write_text(written)
    monkeypatch.chdir("/")
    assert (await (await machine.find()).authorization() or "").lower() == "bearer account"


async def test_requests_are_made_for_the_account_that_a_kubeconfig_acts_as(machine: Machine) -> None:
    acting: dict[str, Any] = {
        "as": "jane",
        "as-uid": "42",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"scopes/a": ["x", "y"]},
    }
    write_kubeconfig(machine.default, "http://h", token="secret", **acting)
    assert (await machine.find()).impersonation == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "42"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-scopes%2Fa", "x"),
        ("Impersonate-Extra-scopes%2Fa", "y"),
    )
    acting = {"as": "j\nane"}
    write_kubeconfig(machine.default, "http://h", token="secret", **acting)
    with pytest.raises(NoCluster, match="account to act as contains characters that a header cannot have"):
        await machine.find()


@pytest.mark.parametrize(
    "rotate",
    [
        pytest.param(rotate_service_account, id="service-account"),
        pytest.param(rotate_token_file, id="token-file"),
        pytest.param(expire_plugin_token, id="plugin-whose-token-is-about-to-end"),
    ],
)
async def test_a_token_that_rotates_is_read_again_within_a_minute(
    machine: Machine, rotate: Callable[[Machine], Awaitable[tuple[Credentials, Callable[[], object]]]]
) -> None:
    credentials, write_new = await rotate(machine)
    write_new()
    machine.clock.now += 59
    assert (await credentials.authorization() or "").lower() == "bearer account"
    machine.clock.now += 1
    assert (await credentials.authorization() or "").lower() == "bearer new"


async def test_the_last_token_stays_while_the_token_file_is_missing(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    credentials, _ = await rotate_service_account(machine)
    machine.token.unlink()
    machine.clock.now += 61
    assert (await credentials.authorization() or "").lower() == "bearer account"
    assert "cannot refresh the token" in caplog.text
    machine.token.write_text("new")
    machine.clock.now += 61
    assert (await credentials.authorization() or "").lower() == "bearer new"


async def test_a_plugin_whose_token_does_not_expire_is_run_again_only_after_a_refusal(machine: Machine) -> None:
    write_plugin(machine, "account")
    credentials = await machine.find()
    machine.clock.now += 3600
    assert await credentials.authorization() == "Bearer account"
    assert (machine.directory / "calls").read_text() == "call\n"
    write_plugin(machine, "new")
    assert await credentials.renew()
    assert await credentials.authorization() == "Bearer new"


async def test_renew_reads_everything_again_at_most_every_ten_seconds(machine: Machine) -> None:
    machine.has_default_kubeconfig()
    credentials = await machine.find()
    write_kubeconfig(machine.default, "http://moved:8080", token="t")
    assert await credentials.renew()
    assert credentials.address.url == "http://moved:8080"
    write_kubeconfig(machine.default, "http://moved-again:8080", token="t")
    assert not await credentials.renew()
    machine.clock.now += 11
    assert await credentials.renew()
    assert credentials.address.url == "http://moved-again:8080"


async def test_requests_that_are_refused_together_renew_once(machine: Machine) -> None:
    write_plugin(machine, "account")
    credentials = await machine.find()
    assert all(await asyncio.gather(credentials.renew(), credentials.renew(), credentials.renew()))
    assert (machine.directory / "calls").read_text() == "call\n" * 2


async def test_a_failed_renew_keeps_the_credentials(machine: Machine) -> None:
    machine.has_default_kubeconfig()
    credentials = await machine.find()
    machine.default.unlink()
    assert not await credentials.renew()
    assert credentials.address.url == "http://default:8080"


@pytest.mark.parametrize(
    ("server", "proxy"),
    [
        pytest.param("http://api.example.org:8080", "http://proxy:3128", id="another-host"),
        pytest.param("http://127.0.0.1:8080", None, id="loopback-is-never-behind-a-proxy"),
        pytest.param("http://inside.example.com:8080", None, id="no_proxy-is-heeded"),
    ],
)
async def test_the_proxy_comes_from_the_environment(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, server: str, proxy: str | None
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "inside.example.com")
    write_kubeconfig(machine.default, server)
    assert (await machine.find()).address.proxy == proxy


async def test_another_token_keeps_the_account_to_act_as(machine: Machine) -> None:
    path = write_kubeconfig(machine.default, "http://h", token="t")
    path.write_text(json.dumps(user(token="t", **{"as": "joe"})(json.loads(path.read_text()))))
    for read in (plain_login([path], anonymous=True), load_kubeconfig(str(path), anonymous=True)):
        assert (await read).impersonation == (("Impersonate-User", "joe"),)


@pytest.mark.parametrize("fields", [{}, {"token": "t"}, {"exec": {"command": "/no/plugin"}}])
async def test_another_token_takes_the_place_of_any_user_of_several_files(
    machine: Machine, tmp_path: Path, fields: dict[str, object]
) -> None:
    (tmp_path / "empty").write_text("")
    path = write_kubeconfig(machine.default, "https://h", ca=machine.ca, **fields)
    login = await find_credentials(f"{tmp_path / 'empty'}:{path}", overrides=Overrides(token="given"))
    assert (login.address.url, await login.authorization()) == ("https://h", "Bearer given")


@pytest.mark.parametrize("plugin", [None, "s", [None]])
async def test_a_plugin_of_another_form_is_refused_in_a_sentence(machine: Machine, plugin: object) -> None:
    path = write_kubeconfig(machine.default, "http://h", token="t")
    path.write_text(json.dumps(user(token="t", exec=plugin)(json.loads(path.read_text()))))
    with nullcontext() if plugin is None else pytest.raises(NoCluster):
        assert (await machine.find()).address.url == "http://h"


async def test_of_several_files_the_first_current_context_counts_as_for_kubectl(
    machine: Machine, tmp_path: Path
) -> None:
    files = [write_kubeconfig(tmp_path / name, f"http://{name}", token=name) for name in ("one", "two")]
    for path in files:
        path.write_text(path.read_text().replace("sandbox", path.name))
    (tmp_path / "empty").write_text("")
    paths = ":".join(map(str, (tmp_path / "empty", *files)))
    login = await load_kubeconfig(paths)
    assert (login.address.url, login.authorization) == ("http://one", "Bearer one")
    assert read_contexts(paths)[0] == "one"


@pytest.mark.parametrize("account", [{"as-groups": "dev"}, {"as-groups": 5}, {"as-user-extra": {"k": None}}])
async def test_an_account_of_another_form_is_refused(machine: Machine, account: dict[str, object]) -> None:
    path = write_kubeconfig(machine.default, "http://h", token="t")
    path.write_text(json.dumps(user(token="t", **{"as": "joe", **account})(json.loads(path.read_text()))))
    with pytest.raises(NoCluster, match="expected a list as-groups"):
        await machine.find()

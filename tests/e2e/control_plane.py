"""etcd and kube-apiserver on loopback: an API that starts empty, and keeps its objects through restarts."""

from __future__ import annotations

import base64
import json
import secrets
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from configurator.certificates import mint_authority
from sandbox.certificates import Authority, PemFiles, write_pair
from tests.e2e.kube_api import KubeApi, Object, RefusedError
from tests.e2e.plain_port import PlainPort
from tests.e2e.ports import free_port
from tests.e2e.programs import Program


class ControlPlane:
    """The two servers, their files in one directory.

    `admin` is the API as a user with all permissions, `scheduler` as kube-scheduler's own user. There is no
    kube-controller-manager, so `add_namespace` and the tests create service accounts, remove taints and delete
    leftover objects.
    """

    def __init__(self, directory: Path, binaries: Path, authority: Authority) -> None:
        self.directory = directory
        self.etcd_port = free_port()
        port = free_port()
        self.admin = KubeApi(port, authority.certificate, secrets.token_hex(16))
        self.scheduler = self.admin.as_user(secrets.token_hex(16))
        self.etcd = Program("etcd", self._etcd_command(), log=directory / "etcd.log")
        command = self._api_server_command(binaries, authority)
        self.api_server = Program("kube-apiserver", command, log=directory / "kube-apiserver.log")

    @property
    def programs(self) -> tuple[Program, ...]:
        return (self.etcd, self.api_server)

    def start(self) -> None:
        self.etcd.start()
        self.etcd.wait_until_healthy(self.etcd_port, lambda: PlainPort(self.etcd_port).is_ready("/health"))
        self.start_api_server()
        self.add_namespace("default")

    def start_api_server(self, *flags: str) -> None:
        """Start kube-apiserver, with the objects that it had before, and return when it is ready."""
        self.api_server.start(*flags)
        self.api_server.wait_until_healthy(self.admin.port, self.admin.is_ready)

    def stop_api_server(self) -> None:
        """Kill kube-apiserver; etcd keeps its objects."""
        self.api_server.kill()

    def restart_api_server(self, *flags: str) -> None:
        """Restart kube-apiserver with these flags beside the usual ones, and with the same keys."""
        self.stop_api_server()
        self.start_api_server(*flags)

    def compact(self) -> None:
        """Let etcd discard its history, so that no watch can continue from before."""
        present = self._ask_etcd("range", {"key": base64.b64encode(b"none").decode()})["header"]["revision"]
        self._ask_etcd("compaction", {"revision": present, "physical": True})

    def stop(self) -> None:
        for program in reversed(self.programs):
            program.kill()

    def add_namespace(self, name: str) -> None:
        """Create a namespace with the service account that pods need, unless they exist."""
        self.admin.ensure("/api/v1/namespaces", {"metadata": {"name": name}})
        self.admin.ensure(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})

    def _ask_etcd(self, call: str, body: Object) -> Object:
        """Send one request to etcd's API in its JSON form."""
        status, text = PlainPort(self.etcd_port).post(f"/v3/kv/{call}", body)
        if status != 200:
            raise RefusedError(status, "POST", call, text)
        decoded: Object = json.loads(text)
        return decoded

    def _etcd_command(self) -> list[str]:
        clients = f"http://127.0.0.1:{self.etcd_port}"
        peers = f"http://127.0.0.1:{free_port()}"
        return [
            "etcd", "--data-dir", str(self.directory / "etcd"), "--unsafe-no-fsync", "--logger", "zap",
            "--listen-client-urls", clients, "--advertise-client-urls", clients,
            "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
            "--initial-cluster", f"default={peers}",
        ]  # fmt: skip

    def _api_server_command(self, binaries: Path, authority: Authority) -> list[str]:
        serving = authority.server("kube-apiserver")
        token_keys = _write_token_keys(self.directory)
        tokens = self.directory / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(
            f'{self.admin.token},admin,admin,"system:masters"\n'
            f"{self.scheduler.token},system:kube-scheduler,system:kube-scheduler\n"
        )
        options = {
            "etcd-servers": f"http://127.0.0.1:{self.etcd_port}",
            "bind-address": "127.0.0.1",
            "secure-port": str(self.admin.port),
            "advertise-address": "127.0.0.1",
            "endpoint-reconciler-type": "none",
            "tls-cert-file": str(serving.certificate),
            "tls-private-key-file": str(serving.key),
            "cert-dir": str(self.directory / "kube-apiserver"),
            "client-ca-file": str(authority.certificate),
            "token-auth-file": str(tokens),
            "allow-privileged": "true",
            "authorization-mode": "RBAC",
            "kubelet-preferred-address-types": "InternalIP",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": str(token_keys.certificate),
            "service-account-signing-key-file": str(token_keys.key),
            "service-cluster-ip-range": "10.96.0.0/24",
            # With them, new nodes and claims would carry a taint or a finalizer that only kube-controller-manager
            # takes away.
            "disable-admission-plugins": "TaintNodesByCondition,StorageObjectInUseProtection",
            "enable-priority-and-fairness": "false",
        }
        return [str(binaries / "kube-apiserver"), *(f"--{name}={value}" for name, value in options.items())]


def _write_token_keys(directory: Path) -> PemFiles:
    """Write the keys with which kube-apiserver signs and checks tokens; `certificate` is a public key."""
    pair = mint_authority(datetime.now(UTC))
    files = write_pair(pair, directory / "service-accounts.pub", directory / "service-accounts.key")
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    files.certificate.write_bytes(pair.key.public_key().public_bytes(*form))
    return files

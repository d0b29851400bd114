"""Whole runs: what is changed, what is left alone, and how it is undone."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest
import yaml

from configurator.certificates import mint_authority, mint_client
from configurator.errors import ConfiguratorError, FileTrouble
from configurator.flags import DEFAULT_TEMPLATE
from configurator.plan import BUILT_IN_TEMPLATE
from configurator.yaml_document import YamlDocument
from gas.cluster.errors import ApiUnavailable
from sandbox.programs import write_kubeconfig
from tests.configurator.control_plane_files import (
    IN_USE,
    KUBEADM,
    NEWEST,
    NOW,
    ORIGINAL_WITH_ANOTHER,
    RELEASES,
    ControlPlaneFiles,
    configuration,
    kubeadm_manifest,
    use_configuration,
    with_words,
)


class _Indented(yaml.SafeDumper):
    """List items are indented below their keys."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


@pytest.mark.parametrize("release", RELEASES)
def test_undo_restores_every_byte_of_every_release(files: ControlPlaneFiles, release: str) -> None:
    files.write_manifest(kubeadm_manifest(release))
    before = files.state()
    files.run()
    assert files.state().keys() > before.keys()
    assert files.run() == "nothing to change"
    files.run("--undo")
    assert files.state() == before


# contract E15.2 to E15.4
def test_effects_of_the_contract(files: ControlPlaneFiles) -> None:
    files.run()
    manifest = YamlDocument("manifest", files.manifest.read_bytes())
    container = manifest.get("spec", "containers", 0)
    assert manifest.get("spec", "dnsPolicy") == "ClusterFirstWithHostNet"
    assert container["command"][-1] == f"--config={files.configuration}"
    assert [mount["mountPath"] for mount in container["volumeMounts"]][1:] == [str(files.configuration), "/host/certs"]
    paths = [volume["hostPath"]["path"] for volume in manifest.get("spec", "volumes")]
    assert paths[1:] == [str(files.configuration), str(files.certificates)]
    assert files.configuration.read_bytes() == BUILT_IN_TEMPLATE.read_bytes()
    assert {path.name for path in files.certificates.iterdir()} == {"client.crt", "client.key", "ca.crt"}
    assert files.manifest.stat().st_mode & 0o777 == 0o600


# contract E15.6
def test_dry_run_shows_the_changes_and_makes_none(files: ControlPlaneFiles) -> None:
    files.write_manifest(files.manifest.read_text().replace("status: {}", "# \u202eevil\nstatus: {}"))
    before = files.state()
    said = files.run("-dry-run", user=1000)
    assert files.state() == before
    assert said.endswith("dry run: 10 file(s) would be changed, nothing was")
    for line in (
        "+    - --config=",
        "+  dnsPolicy: ClusterFirstWithHostNet",
        " # \\x202eevil",
        "+subject: CN=kube-scheduler",
        "+valid: 2026-05-04 to 2027-05-04",
        "+names: gas-service.default.svc.cluster.local, gas-service.default.svc,",
        "+(a private key, not shown; mode 0600)",
    ):
        assert line in said
    assert "PRIVATE KEY" not in said
    files.run()
    assert files.run("-dry-run") == "dry run: nothing would be changed"


def test_dry_run_of_a_change_is_coloured_and_shows_no_private_key(files: ControlPlaneFiles) -> None:
    files.run()
    (files.certificates / "client.key").write_bytes(b"-----BEGIN PRIVATE KEY-----\nsecret")
    files.write_manifest(files.manifest.read_text().replace("dnsPolicy: ClusterFirstWithHostNet", "dnsPolicy: Default"))
    said = files.run("-dry-run", coloured=True)
    assert "\x1b[31m-  dnsPolicy: Default\x1b[0m" in said
    assert "\x1b[32m+  dnsPolicy: ClusterFirstWithHostNet\x1b[0m" in said
    assert "-(a private key, not shown)" in said
    assert "secret" not in said.replace("extender-secret", "")
    assert "\x1b" not in files.run("-dry-run")


def test_only_root_may_change(files: ControlPlaneFiles) -> None:
    before = files.state()
    for more in ((), ("--undo",)):
        with pytest.raises(ConfiguratorError, match="only root can change"):
            files.run(*more, user=1000)
    assert files.state() == before


class TestConfigurationInUse:
    def test_is_merged_into_where_it_is(self, files: ControlPlaneFiles) -> None:
        path = files.etc / "scheduler/mine.yaml"
        use_configuration(files, path)
        before = files.state()
        files.run(f"-cert-dir={files.certificates}", places=False)
        assert "example.com/disk" in path.read_text()
        assert "gpu.intel.com/i915" in path.read_text()
        assert not files.configuration.exists()
        manifest = files.manifest.read_text()
        assert manifest.count("--config") == 1
        assert "schedulerconfig" not in manifest
        assert files.run(f"-cert-dir={files.certificates}", places=False) == "nothing to change"
        files.run("--undo")
        assert files.state() == before

    def test_goes_where_d_says(self, files: ControlPlaneFiles) -> None:
        path = files.etc / "scheduler/mine.yaml"
        use_configuration(files, path)
        files.run()
        assert path.read_text() == IN_USE
        assert "MostAllocated" in files.configuration.read_text()
        assert f"--config={files.configuration}" in files.manifest.read_text()
        assert str(path) in files.manifest.read_text()  # its mount stays; nothing is lost
        assert files.run() == "nothing to change"

    def test_change_of_it_alone_restarts_the_scheduler(self, files: ControlPlaneFiles) -> None:
        files.run()
        fingerprint = re.findall("fingerprint: (.*)", files.manifest.read_text())
        files.configuration.write_text(files.configuration.read_text() + "parallelism: 4\n")
        files.run()
        assert re.findall("fingerprint: (.*)", files.manifest.read_text()) != fingerprint

    def test_after_kubeadm_wrote_the_manifest_anew_it_is_found_again(self, files: ControlPlaneFiles) -> None:
        files.run()
        files.configuration.write_text(files.configuration.read_text() + "parallelism: 4\n")
        files.write_manifest(kubeadm_manifest(NEWEST))
        files.run()
        assert configuration(files).get("parallelism") == 4
        assert len(configuration(files).get("extenders")) == 1


class TestTemplate:
    def test_of_the_working_directory_is_the_default(self, files: ControlPlaneFiles) -> None:
        path = Path.cwd() / DEFAULT_TEMPLATE
        path.parent.mkdir(parents=True)
        path.write_text(ORIGINAL_WITH_ANOTHER)
        files.run()
        assert "other-service" in files.configuration.read_text()

    def test_name_of_the_file_is_kept(self, files: ControlPlaneFiles) -> None:
        path = files.root / "scheduler-config-two.yaml"
        path.write_text(ORIGINAL_WITH_ANOTHER)
        files.run(f"-f={path}")
        assert (files.etc / "scheduler-config-two.yaml").exists()
        assert not files.configuration.exists()

    def test_of_which_only_the_extenders_are_used_is_noted(self, files: ControlPlaneFiles) -> None:
        use_configuration(files, files.etc / "mine.yaml")
        path = files.root / "two.yaml"
        path.write_text(ORIGINAL_WITH_ANOTHER)
        assert "so only the extenders of" in files.run(f"-f={path}", "-dry-run")


def test_directory_of_certificates_stays_where_an_earlier_run_put_it(files: ControlPlaneFiles) -> None:
    elsewhere = files.etc / "scheduler-certs"
    files.run(f"-cert-dir={elsewhere}")
    before = files.state()
    assert files.run(f"-d={files.etc}", places=False) == "nothing to change"
    assert files.state() == before


def test_rootless_scheduler_can_read_its_key(files: ControlPlaneFiles) -> None:
    user, group = (os.geteuid(), os.getegid()) if os.geteuid() else (994, 992)
    context = f"    securityContext: {{runAsUser: {user or 994}, runAsGroup: {group or 992}}}\n"
    files.write_manifest(kubeadm_manifest(NEWEST).replace("    imagePullPolicy", context + "    imagePullPolicy"))
    files.run()
    found = (files.certificates / "client.key").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (user, group, 0o600)
    assert (files.certificates).stat().st_mode & 0o777 == 0o755


class TestUndo:
    def test_without_a_run_there_is_nothing_to_take_back(self, files: ControlPlaneFiles) -> None:
        with pytest.raises(ConfiguratorError, match="contains no backup of a run"):
            files.run("--undo")

    def test_goes_back_run_by_run(self, files: ControlPlaneFiles) -> None:
        states = [files.state()]
        files.run()
        states.append(files.settings())
        files.run("--url=https://127.0.0.1:9001")
        said = files.run("--undo")
        assert "the run before it can be undone as well" in said
        assert files.settings() == states[1]
        files.run("--undo")
        assert files.state() == states[0]

    @pytest.mark.parametrize(
        ("name", "content", "sentence"),
        [
            ("manifest", b"# mine\n", r"was changed since backup_.*restore by hand"),
            ("configuration", b"# mine\n", r"was changed since backup_.*restore by hand"),
            ("manifest", None, "was removed since"),
        ],
    )
    def test_refuses_when_a_file_was_changed_since(
        self, files: ControlPlaneFiles, name: str, content: bytes | None, sentence: str
    ) -> None:
        files.run()
        path: Path = getattr(files, name)
        if content is None:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes() + content)
        before = files.state()
        with pytest.raises(ConfiguratorError, match=sentence):
            files.run("--undo")
        assert files.state() == before

    def test_restores_mode_and_content(self, files: ControlPlaneFiles) -> None:
        files.run()
        os.chmod(files.certificates / "client.key", 0o644)  # noqa: PTH101
        before = files.settings()
        files.run()
        assert (files.certificates / "client.key").stat().st_mode & 0o777 == 0o600
        files.run("--undo")
        assert files.settings() == before

    def test_directory_with_something_else_in_it_stays(self, files: ControlPlaneFiles) -> None:
        files.run()
        (files.certificates / "other.crt").write_text("x")
        files.run("--undo")
        assert [path.name for path in files.certificates.iterdir()] == ["other.crt"]

    def test_record_that_others_could_have_written_is_not_used(self, files: ControlPlaneFiles) -> None:
        files.run()
        files.backups()[0].chmod(0o777)
        with pytest.raises(FileTrouble, match="could have been written by another user"):
            files.run("--undo")

    def test_damaged_stored_file_is_not_restored(self, files: ControlPlaneFiles) -> None:
        files.run()
        stored = next(files.backups()[0].rglob("kube-scheduler.yaml"))
        stored.write_text("half")
        before = files.settings()
        with pytest.raises(FileTrouble, match="is not the file that was stored there; nothing was undone"):
            files.run("--undo")
        assert files.settings() == before

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"files": [{}], "complete": true, "directories": []}'])
    def test_record_that_is_damaged_is_refused(self, files: ControlPlaneFiles, text: str) -> None:
        files.run()
        (files.backups()[0] / "record.json").write_text(text)
        with pytest.raises(FileTrouble, match="it is damaged"):
            files.run("--undo")


def test_backup_holds_each_file_as_it_was(files: ControlPlaneFiles) -> None:
    files.run()
    (backup,) = files.backups()
    assert (backup / files.manifest.relative_to("/")).read_text() == kubeadm_manifest(NEWEST)
    assert backup.stat().st_mode & 0o777 == 0o700
    assert json.loads((backup / "record.json").read_text())["number"] == 1


@pytest.mark.parametrize(
    "form", ["JSON on one line", "JSON", "indented lists", "tabs in comments", "no last newline", "Windows"]
)
def test_other_styles_of_yaml_are_accepted(files: ControlPlaneFiles, form: str) -> None:
    text = kubeadm_manifest(NEWEST)
    pod = yaml.safe_load(text)
    written = {
        "JSON on one line": json.dumps(pod),
        "JSON": json.dumps(pod, indent=4),
        "indented lists": yaml.dump(pod, Dumper=_Indented, indent=8),
        "tabs in comments": text.replace("\n    - --", " #\twhy\n    - --"),
        "no last newline": text.rstrip("\n"),
        "Windows": text.replace("\n", "\r\n"),
    }[form]
    assert yaml.safe_load(written) == pod
    files.write_manifest(written)
    before = files.state()
    files.run()
    assert files.manifest.read_bytes().count(b"\n") == files.manifest.read_bytes().count(b"\r\n") or form != "Windows"
    after = yaml.safe_load(files.manifest.read_text())
    assert after["spec"]["containers"][0]["command"][-1].startswith("--config=")
    assert {volume["name"] for volume in after["spec"]["volumes"]} == {"kubeconfig", "schedulerconfig", "certdir"}
    if form.startswith("JSON"):
        json.loads(files.manifest.read_text())
    assert files.run() == "nothing to change"
    files.run("--undo")
    assert files.state() == before


def write_certificate(files: ControlPlaneFiles, name: str, content: bytes) -> None:
    files.certificates.mkdir()
    (files.certificates / name).write_bytes(content)


def link_certificate(files: ControlPlaneFiles) -> None:
    files.certificates.mkdir()
    (files.certificates / "client.key").symlink_to("/etc/passwd")


def link_manifest(files: ControlPlaneFiles) -> None:
    target = files.root / "real.yaml"
    files.manifest.rename(target)
    files.manifest.symlink_to(target)


def lose_configuration(files: ControlPlaneFiles) -> None:
    use_configuration(files, files.etc / "mine.yaml")
    (files.etc / "mine.yaml").unlink()


def lose_authority_key(files: ControlPlaneFiles) -> None:
    files.run()
    (files.own / "ca.key").unlink()


ELSEWHERE = mint_client(mint_authority(NOW, name="company"), NOW, name="backup-agent")


@pytest.mark.parametrize(
    ("prepare", "flag", "sentence"),
    [
        pytest.param(link_manifest, "", r"is a link to .*real\.yaml; name the file itself", id="link to the manifest"),
        pytest.param(lambda f: os.link(f.manifest, f.root / "o.yaml"), "", "has a second name", id="second name"),
        pytest.param(lambda f: f.configuration.symlink_to("nowhere"), "", "is a link to nowhere", id="dangling link"),
        pytest.param(link_certificate, "", "is a link to /etc/passwd", id="link in the place of a certificate"),
        pytest.param(lambda f: f.configuration.mkdir(), "", "is not a regular file", id="directory"),
        pytest.param(lambda f: os.mkfifo(f.configuration), "", "is not a regular file", id="pipe"),
        pytest.param(
            lambda f: f.manifest.unlink(), "", "does not exist; run this on a control-plane", id="no manifest"
        ),
        pytest.param(
            lambda f: f.write_manifest(with_words("--config=/etc/inside.yaml")),
            "",
            "is not a file of this machine that the pod mounts",
            id="configuration inside the container",
        ),
        pytest.param(
            lose_configuration, "", r"mine\.yaml does not exist, although .* has --config", id="no configuration"
        ),
        pytest.param(
            lambda f: f.write_manifest(with_words("--kube-api-qps=fast")),
            "",
            r"--kube-api-qps=fast.*expected a number such as 50",
            id="flag that kube-scheduler could not read",
        ),
        pytest.param(None, "-f=none.yaml", r"none\.yaml cannot be read: No such file", id="no template"),
        pytest.param(
            lambda f: write_certificate(f, "client.crt", b"-----BEGIN CERTIFICATE-----\nhalf"),
            "",
            r"client\.crt holds no PEM certificate",
            id="client.crt is something else",
        ),
        pytest.param(
            lambda f: write_certificate(f, "ca.crt", b"-----BEGIN CERTIFICATE-----\nhalf"),
            "",
            r"ca\.crt holds no PEM certificate",
            id="ca.crt is something else",
        ),
        pytest.param(
            lambda f: write_certificate(f, "ca.crt", ELSEWHERE.chain),
            "",
            r"ca\.crt is not an authority's certificate; move it away",
            id="ca.crt is a client's",
        ),
        pytest.param(
            lambda f: write_certificate(f, "client.crt", ELSEWHERE.chain),
            "",
            "for 'backup-agent' that the configurator did not make",
            id="client.crt of another program",
        ),
        pytest.param(
            lose_authority_key,
            "",
            r"ca\.crt exists, .*ca\.key does not: copy both .* run with --undo was stopped",
            id="authority without its key",
        ),
        pytest.param(
            None,
            "--cluster-ca -cert=/none -key=/none",
            "does not exist; name the cluster's authority",
            id="no authority",
        ),
        pytest.param(
            None,
            "--pki-dir={f.certificates}/gas",
            "holds the authority's private key",
            id="authority for the scheduler",
        ),
        *(
            pytest.param(None, f"{name}={{f.manifests}}{below}", "where kubelet runs every file", id=name + below)
            for name, below in (("-d", ""), ("-cert-dir", "/deeper"), ("--pki-dir", ""), ("-b", ""), ("-b", "/deeper"))
        ),
        pytest.param(
            lambda f: (f.root / "innocent").symlink_to(f.manifests),
            "-b={f.root}/innocent",
            "where kubelet runs every file",
            id="link to where kubelet runs every file",
        ),
    ],
)
def test_refused_run_changes_nothing(
    files: ControlPlaneFiles, prepare: Callable[[ControlPlaneFiles], object] | None, flag: str, sentence: str
) -> None:
    if prepare is not None:
        prepare(files)
    before = files.state()
    with pytest.raises(ConfiguratorError, match=sentence):
        files.run(*flag.format(f=files).split())
    assert files.state() == before


def test_no_unfinished_file_is_ever_where_kubelet_runs_every_file(
    files: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[str] = set()
    fsync = os.fsync

    def look(descriptor: int) -> None:
        seen.update(each.name for each in files.manifests.iterdir() if not each.name.startswith("."))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    files.run()
    files.run("--undo")
    assert seen == {"kube-scheduler.yaml"}


class TestTwoRunsAtOnce:
    def test_second_is_refused_and_changes_nothing(self, files: ControlPlaneFiles) -> None:
        before = files.state()
        descriptor = os.open(files.etc, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with pytest.raises(ConfiguratorError, match="another configurator is running"):
                files.run()
            assert "would be changed" in files.run("-dry-run")
        finally:
            os.close(descriptor)
        assert files.state() == before

    def test_file_that_is_edited_meanwhile_is_not_lost(
        self, files: ControlPlaneFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fsync, edited = os.fsync, files.manifest.read_text() + "# edited\n"

        def edit(descriptor: int) -> None:
            files.manifest.write_text(edited)
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", edit)
        with pytest.raises(FileTrouble, match="was changed by another program just now; run again"):
            files.run()
        assert files.manifest.read_text() == edited
        assert not files.configuration.exists()
        assert not files.certificates.exists()


def test_next_steps_are_printed_once(files: ControlPlaneFiles) -> None:
    assert f"next: kubectl apply -f {files.own}/extender-secret.yaml" in files.run()
    files.configuration.write_text(files.configuration.read_text() + "parallelism: 4\n")
    assert "next:" not in files.run()


def test_secret_that_cannot_be_applied_leaves_the_files_and_names_the_command(files: ControlPlaneFiles) -> None:
    kubeconfig = write_kubeconfig(files.root / "admin.conf", "https://127.0.0.1:1", token="t")
    with pytest.raises(ConfiguratorError, match=r"all files are complete, but the Secret .*kubectl apply -f"):
        files.run("--apply-secret", f"--kubeconfig={kubeconfig}")
    assert files.run() == "nothing to change"


def test_a_kubeconfig_that_cannot_be_used_is_found_before_anything_is_changed(files: ControlPlaneFiles) -> None:
    before = files.manifest.read_bytes()
    broken = files.root / "broken"
    broken.write_text("{}")
    for kubeconfig, why in (
        (files.root / "none", "the file does not exist"),
        (broken, "expected a kubeconfig with a current context"),
    ):
        with pytest.raises(ConfiguratorError, match=rf"nothing was changed.*{kubeconfig}: {why}.*with --kubeconfig"):
            files.run("--apply-secret", f"--kubeconfig={kubeconfig}")
    assert files.manifest.read_bytes() == before
    assert not files.own.exists()


class Api:
    """An API server that is away for the first requests, and records the others."""

    def __init__(self, *, away: int = 0) -> None:
        self.away = away
        self.requests: list[tuple[str, str]] = []
        self.bundles: list[bytes] = []

    async def request(self, method: str, path: str, *, body: bytes = b"", **_: object) -> bytes:
        if self.away:
            self.away -= 1
            raise ApiUnavailable("the API server is away")
        self.requests.append((method, path.rpartition("/apis/")[2] or path))
        if "webhookconfigurations" not in path:
            return b"{}"
        if method == "PATCH":
            self.bundles += [
                base64.b64decode(each["clientConfig"]["caBundle"]) for each in json.loads(body)["webhooks"]
            ]
        webhook = {"name": "bind.pods.gas", "clientConfig": {"service": {}}}
        return json.dumps({"metadata": {"resourceVersion": "1"}, "webhooks": [webhook]}).encode()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None: ...


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    found = Api()

    async def connect(*_: object, **__: object) -> Api:
        return found

    monkeypatch.setattr("gas.cluster.connection.connect", connect)
    monkeypatch.setattr("configurator.program.find_credentials", connect)
    return found


def test_the_api_server_trusts_the_authority_before_the_extender_gets_its_certificate(
    files: ControlPlaneFiles, api: Api
) -> None:
    said = files.run("--apply-secret", "--webhooks=my-admission")
    group = "admissionregistration.k8s.io/v1"
    assert api.requests == [
        ("GET", f"{group}/validatingwebhookconfigurations/my-admission"),
        ("PATCH", f"{group}/validatingwebhookconfigurations/my-admission"),
        ("GET", f"{group}/mutatingwebhookconfigurations/my-admission"),
        ("PATCH", f"{group}/mutatingwebhookconfigurations/my-admission"),
        ("PATCH", "/api/v1/namespaces/default/secrets/extender-secret"),
    ]
    assert set(api.bundles) == {(files.own / "ca.crt").read_bytes()}
    assert "validatingwebhookconfigurations my-admission: the API server trusts the authority" in said


def test_a_run_that_restarts_the_api_server_waits_for_it(
    files: ControlPlaneFiles, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = KUBEADM / NEWEST / "kube-apiserver.yaml"
    mounted = release.read_text().replace("path: /etc/kubernetes/pki\n", f"path: {files.etc}/pki\n")
    (files.manifests / "kube-apiserver.yaml").write_text(mounted)
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("configurator.program.asyncio.sleep", sleep)
    api.away = 3
    assert "is in the cluster" in files.run("--apply-secret", "--api-server")
    assert len(waited) == 3
    api.away = 1
    with pytest.raises(ConfiguratorError, match="the API server is away"):
        files.run("--apply-secret")  # which restarts nothing


def test_old_flags_of_the_original_are_accepted(files: ControlPlaneFiles) -> None:
    assert "note: ignored: --gas-depl; the manifests in deploy/ need no change" in files.run(
        "-gas-depl", "x.yaml", "-dry-run"
    )

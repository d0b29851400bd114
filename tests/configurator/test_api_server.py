"""``--api-server``: kube-apiserver presents a certificate to the webhooks, and ``--undo`` takes that back."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from cryptography.x509.oid import ExtendedKeyUsageOID

from configurator.certificates import is_for, is_signed_by, mint_authority
from configurator.errors import ConfiguratorError, FileTrouble
from configurator.static_pod import FINGERPRINT
from configurator.yaml_document import YamlDocument
from tests.configurator.control_plane_files import KUBEADM, NOW, ControlPlaneFiles, load, write_pair

RELEASES = sorted(path.parent.name for path in KUBEADM.glob("*/kube-apiserver.yaml"))
ROOT = Path(__file__).parents[2]
INSIDE = "/etc/kubernetes/pki/gas"
"""Where kube-apiserver's container sees the configurator's directory."""


@pytest.fixture(params=RELEASES)
def control_plane(files: ControlPlaneFiles, request: pytest.FixtureRequest) -> ControlPlaneFiles:
    """A control plane whose kube-apiserver mounts the directory of certificates, as with kubeadm."""
    text = (KUBEADM / request.param / "kube-apiserver.yaml").read_text()
    mounted = "path: /etc/kubernetes/pki\n"
    assert text.count(f"      {mounted}") == 1
    manifest = files.manifests / "kube-apiserver.yaml"
    manifest.write_text(text.replace(f"      {mounted}", f"      path: {files.etc}/pki\n"))
    manifest.chmod(0o600)
    return files


def api_server(files: ControlPlaneFiles) -> YamlDocument:
    return YamlDocument("manifest", (files.manifests / "kube-apiserver.yaml").read_bytes())


def command(files: ControlPlaneFiles) -> list[str]:
    found: list[str] = api_server(files).get("spec", "containers", 0, "command")
    return found


def change(files: ControlPlaneFiles, before: str, after: str) -> None:
    manifest = files.manifests / "kube-apiserver.yaml"
    assert before in manifest.read_text()
    manifest.write_text(manifest.read_text().replace(before, after))


def test_releases_of_the_end_to_end_tests_are_covered() -> None:
    assert RELEASES == ["1.35", "1.37"]


def test_nothing_is_done_without_the_flag(control_plane: ControlPlaneFiles) -> None:
    before = (control_plane.manifests / "kube-apiserver.yaml").read_bytes()
    control_plane.run()
    assert (control_plane.manifests / "kube-apiserver.yaml").read_bytes() == before
    assert not (control_plane.own / "api-server.crt").exists()


def test_the_api_server_gets_a_certificate_for_the_webhooks_alone(control_plane: ControlPlaneFiles) -> None:
    files = control_plane
    before = command(files)
    said = files.run("--api-server", "--san=my-admission.gpu.svc")
    assert "new: a client certificate for kube-apiserver, valid until 2027-05-04" in said
    assert command(files) == [*before, f"--admission-control-config-file={INSIDE}/admission.yaml"]
    plugins = yaml.safe_load((files.own / "admission.yaml").read_text())["plugins"]
    assert [plugin["name"] for plugin in plugins] == ["ValidatingAdmissionWebhook", "MutatingAdmissionWebhook"]
    assert {plugin["configuration"]["kubeConfigFile"] for plugin in plugins} == {f"{INSIDE}/admission-kubeconfig.yaml"}
    users = yaml.safe_load((files.own / "admission-kubeconfig.yaml").read_text())["users"]
    assert [user["name"] for user in users] == [
        "gas-service.default.svc", "gas-admission.default.svc", "gas-binding.default.svc", "my-admission.gpu.svc"
    ]  # fmt: skip
    assert [user["user"] for user in users] == [
        {"client-certificate": f"{INSIDE}/api-server.crt", "client-key": f"{INSIDE}/api-server.key"}
    ] * 4
    pair = load(files.own / "api-server.crt", files.own / "api-server.key")
    assert pair.certificate.subject.rfc4514_string() == "CN=kube-apiserver"
    assert is_for(pair.certificate, ExtendedKeyUsageOID.CLIENT_AUTH)
    assert is_signed_by(pair.certificate, load(files.own / "ca.crt", files.own / "ca.key").certificate)
    assert (files.own / "api-server.key").stat().st_mode & 0o777 == 0o600


def test_the_files_for_other_control_planes_are_those_of_the_configurator(control_plane: ControlPlaneFiles) -> None:
    control_plane.run("--api-server")
    page = (ROOT / "docs/admission.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    documented = [each for each in blocks if isinstance(each, dict)]  # a JSON patch is a list
    (plugins,) = [each for each in documented if each.get("kind") == "AdmissionConfiguration"]
    assert plugins == yaml.safe_load((control_plane.own / "admission.yaml").read_text())
    (kubeconfig,) = [each for each in documented if each.get("kind") == "Config"]
    written = yaml.safe_load((control_plane.own / "admission-kubeconfig.yaml").read_text())
    assert kubeconfig == written | {"users": [each for each in written["users"] if "gas-service" not in each["name"]]}


def test_undo_restores_every_byte(control_plane: ControlPlaneFiles) -> None:
    files = control_plane
    before = files.state()
    files.run("--api-server")
    assert files.run("--api-server") == "nothing to change"
    files.run("--undo")
    assert files.state() == before


def test_later_runs_renew_the_certificate_without_the_flag(control_plane: ControlPlaneFiles) -> None:
    files = control_plane
    files.run("--api-server")
    assert files.run() == "nothing to change"
    first = load(files.own / "api-server.crt", files.own / "api-server.key")
    manifest = (files.manifests / "kube-apiserver.yaml").read_bytes()
    files.run(now=NOW + timedelta(days=300))
    second = load(files.own / "api-server.crt", files.own / "api-server.key")
    assert second.certificate.not_valid_after_utc > first.certificate.not_valid_after_utc
    # kube-apiserver loads it by itself, so it is not restarted.
    assert (files.manifests / "kube-apiserver.yaml").read_bytes() == manifest


def test_new_names_restart_the_api_server(control_plane: ControlPlaneFiles) -> None:
    files = control_plane
    files.run("--api-server")
    before = api_server(files).get("metadata", "annotations", FINGERPRINT)
    files.run("--san=my-admission.gpu.svc")
    assert api_server(files).get("metadata", "annotations", FINGERPRINT) != before


def test_flags_in_args_get_the_new_one_beside_them(control_plane: ControlPlaneFiles) -> None:
    files = control_plane
    change(files, "    - kube-apiserver\n", "    - kube-apiserver\n    args:\n")
    files.run("--api-server")
    args = api_server(files).get("spec", "containers", 0, "args")
    assert args[-1] == f"--admission-control-config-file={INSIDE}/admission.yaml"
    assert command(files) == ["kube-apiserver"]


def test_an_api_server_that_does_not_run_as_root_can_read_its_key(control_plane: ControlPlaneFiles) -> None:
    files = control_plane
    change(files, "  securityContext:\n", "  securityContext:\n    runAsUser: 2001\n    runAsGroup: 2002\n")
    files.run("--api-server")
    status = (files.own / "api-server.key").stat()
    assert (status.st_uid, status.st_gid) == (2001, 2002)


def refused(files: ControlPlaneFiles, *flags: str, error: type[ConfiguratorError], match: str) -> None:
    before = files.state()
    with pytest.raises(error, match=match):
        files.run("--api-server", *flags)
    assert files.state() == before


def test_another_configuration_of_the_plugins_is_not_replaced(control_plane: ControlPlaneFiles) -> None:
    change(
        control_plane,
        "    - --allow-privileged=true\n",
        "    - --allow-privileged=true\n    - --admission-control-config-file=/etc/kubernetes/mine.yaml\n",
    )
    refused(control_plane, error=FileTrouble, match=r"has --admission-control-config-file=/etc/kubernetes/mine.yaml")
    control_plane.run()


def test_a_directory_that_the_api_server_does_not_see_is_refused(control_plane: ControlPlaneFiles) -> None:
    elsewhere = control_plane.etc / "elsewhere"
    refused(control_plane, f"--pki-dir={elsewhere}", error=FileTrouble, match=f"does not mount {elsewhere}.*--pki-dir")


def test_another_authority_is_refused(control_plane: ControlPlaneFiles) -> None:
    certificate, key = write_pair(control_plane.etc / "pki", "ca", mint_authority(NOW, name="kubernetes"))
    named = (f"-cert={certificate}", f"-key={key}")
    refused(
        control_plane, *named, error=ConfiguratorError, match="--api-server needs the authority of the configurator"
    )


@pytest.mark.parametrize(
    ("before", "after", "match"),
    [
        pytest.param("kind: Pod", "kind: Job", "not a Pod of", id="another kind"),
        pytest.param("    - kube-apiserver\n", "    - sh\n", "has 0 containers that run kube-apiserver", id="a shell"),
        pytest.param(
            "    - --allow-privileged=true\n",
            "    - 1\n",
            "is not a complete Pod: Expected `str`, got `int`",
            id="a number for a word",
        ),
    ],
)
def test_another_manifest_is_refused(control_plane: ControlPlaneFiles, before: str, after: str, match: str) -> None:
    change(control_plane, before, after)
    refused(control_plane, error=FileTrouble, match=match)
    control_plane.run()  # without the flag it does not matter


def test_a_control_plane_without_an_api_server_is_refused(files: ControlPlaneFiles) -> None:
    refused(files, error=FileTrouble, match=r"kube-apiserver\.yaml does not exist; --api-server needs")


def test_a_directory_that_another_mount_covers_is_refused(control_plane: ControlPlaneFiles) -> None:
    mount = "    - mountPath: /etc/ssl/certs\n      name: ca-certs\n"
    change(control_plane, mount, mount + mount.replace("/etc/ssl/certs", "/etc/kubernetes/pki/gas"))
    refused(control_plane, error=FileTrouble, match="does not mount")

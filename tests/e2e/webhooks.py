"""The webhooks as users install them, registered at the real API server, which calls them on loopback.

The tests register what deploy/ has. Only the address is another one, and what a test names.
"""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from sandbox.certificates import Authority
from tests.deploy.manifests import DEPLOY
from tests.e2e.extender_double import FailingServer
from tests.e2e.gpu_node import GpuNode
from tests.e2e.helm import Helm, objects
from tests.e2e.kube_api import KubeApi, Object, refusal
from tests.e2e.kubectl import Kubectl
from tests.e2e.waiting import wait_for

_COMPONENT = Path(__file__).parents[2] / "deploy/components/admission/webhooks.yaml"

_GROUP = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{_GROUP}/mutatingwebhookconfigurations"
_COLLECTIONS = {
    "ValidatingWebhookConfiguration": f"{_GROUP}/validatingwebhookconfigurations",
    "MutatingWebhookConfiguration": MUTATING,
}

BIND = "bind.pods.gas"
"""Name of the webhook of bindings, which messages of the API server contain."""

BUSY = 30
"""The longest time-out in seconds: the webhooks get it where the test is not about time and the machine may be busy."""


def component_webhooks(*names: str) -> list[Object]:
    """Return the registrations of the kustomize component, with only these webhooks; all without names."""
    documents = yaml.safe_load_all(_COMPONENT.read_text(encoding="utf-8"))
    return _only(documents, names) if names else list(documents)


def chart_webhooks(helm: Helm, *names: str, settings: str) -> list[Object]:
    """Return the registrations of the chart with these values, with only these webhooks."""
    values = f"admission.enabled=true,{settings}"
    rendered = objects(helm.template("--show-only=templates/admission.yaml", "--set", values))
    return _only((each for each in rendered if each["kind"] in _COLLECTIONS), names)


def register(api: KubeApi, registrations: Sequence[Object], port: int, authority: Path, **changes: object) -> None:
    """Register webhooks with a port of loopback as their address. ``changes`` replace fields of all of them."""
    for registration in registrations:
        called = [on_loopback(each, port, authority, **changes) for each in registration["webhooks"]]
        api.create(_COLLECTIONS[registration["kind"]], {**registration, "webhooks": called})


def register_pod_webhooks(gpu_node: GpuNode, port: int, is_completed: Callable[[], bool]) -> None:
    """Register the webhooks for new pods, and wait until the one that completes pods is called.

    is_completed  whether a pod that the test tries to create is; the webhook that checks pods may be called before
    """
    shipped = component_webhooks("create.pods.gas", "complete.pods.gas")
    authority = gpu_node.cluster.authority.certificate
    register(gpu_node.api, shipped, port, authority, failurePolicy="Fail", timeoutSeconds=BUSY)

    wait_for("pods are completed", lambda: not refusal(is_completed) and is_completed())


def apply_overlay(kubectl: Kubectl, gpu_node: GpuNode, overlay: str, port: int) -> None:
    """Apply an overlay of deploy/, and let its webhooks of pods call an extender that runs outside of the cluster.

    Without those of bindings, which know the extender by its account, and without the policy about the plugin's, which
    needs a token of a pod. Only the objects of programs are there: no controller runs them.
    """
    kubectl.run("apply", "-k", DEPLOY / "overlays" / overlay)
    gpu_node.api.delete(f"{_GROUP}/validatingadmissionpolicybindings/gas-plugin-own-node-only")
    for registration in component_webhooks("create.pods.gas", "complete.pods.gas"):
        path = f"{_COLLECTIONS[registration['kind']]}/{registration['metadata']['name']}"
        authority = gpu_node.cluster.authority.certificate
        called = [on_loopback(each, port, authority, timeoutSeconds=BUSY) for each in registration["webhooks"]]
        gpu_node.api.merge(path, {"webhooks": called})


def on_loopback(webhook: Object, port: int, authority: Path, **changes: object) -> Object:
    """Return a webhook with a port of loopback as its address. ``changes`` replace other fields."""
    bundle = base64.b64encode(authority.read_bytes()).decode()
    url = f"https://127.0.0.1:{port}{webhook['clientConfig']['service']['path']}"
    return {**webhook, "clientConfig": {"url": url, "caBundle": bundle}, **changes}


@contextmanager
def slow_webhook(api: KubeApi, authority: Authority, *, seconds: float, pod: str) -> Iterator[threading.Event]:
    """Register a webhook that runs after the extender's and keeps the Bindings of one pod; yields if it has one."""
    asked = threading.Event()

    def wait(_: Object) -> list[Object]:
        asked.set()
        time.sleep(seconds)
        return []

    one_pod = [{"name": "one-pod", "expression": f"object.metadata.name == '{pod}'"}]
    with later_webhook(api, authority, wait, matchConditions=one_pod):
        yield asked


@contextmanager
def later_webhook(
    api: KubeApi, authority: Authority, respond: Callable[[Object], list[Object]], **changes: object
) -> Iterator[None]:
    """Register a webhook that runs after the extender's.

    respond  Binding, or another object that its rules match -> JSON patch
    changes  replace fields of its registration
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps connections
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            patch = base64.b64encode(json.dumps(respond(review["request"]["object"])).encode()).decode()
            review["response"] = {
                "uid": review["request"]["uid"],
                "allowed": True,
                "patchType": "JSONPatch",
                "patch": patch,
            }
            body = json.dumps(review).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    serving = authority.server("later")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(serving.certificate, serving.key)
    server = FailingServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (registration,) = component_webhooks(BIND)
    hook = on_loopback(
        registration["webhooks"][0],
        server.server_address[1],
        authority.certificate,
        name="later.example.com",
        failurePolicy="Fail",
        timeoutSeconds=30,
        **changes,
    )
    # Registrations are called in the order of their names.
    api.create(MUTATING, {"metadata": {"name": "later-than-gas"}, "webhooks": [hook]})
    try:
        time.sleep(2)  # the API server reads registrations with a delay, and nothing else shows that it has
        yield
    finally:
        api.delete(f"{MUTATING}/later-than-gas")
        server.shutdown()
        server.server_close()


def unregister(api: KubeApi) -> None:
    """Remove all registrations."""
    for collection in _COLLECTIONS.values():
        api.delete(collection)


def _only(registrations: Iterable[Object], names: Collection[str]) -> list[Object]:
    chosen = [
        {**each, "webhooks": [webhook for webhook in each["webhooks"] if webhook["name"] in names]}
        for each in registrations
    ]
    found = {webhook["name"] for each in chosen for webhook in each["webhooks"]}
    if missing := set(names) - found:
        raise KeyError(f"deploy/ has no webhook {', '.join(sorted(missing))}")
    return [each for each in chosen if each["webhooks"]]

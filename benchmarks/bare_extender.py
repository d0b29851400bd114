"""The extender to compare with: the same server, TLS and decoding, but it passes every name and keeps no ledger.

It binds with one write, with the annotations that a pod of one card would get. Run as ``python -m
benchmarks.bare_extender``; it serves until SIGTERM.
"""

import argparse
import asyncio
import signal
import time
from pathlib import Path

from gas.cluster.connection import ApiServer, connect
from gas.cluster.objects import bind_pod
from gas.daemon.listening import listen
from gas.daemon.serving import SCHEDULER_KEEP_ALIVE, Port, serve
from gas.decision import names
from gas.extender.metrics import Metrics
from gas.extender.server import ServedVerb, Verb, extender_app
from gas.extender.tls import CertificateFiles, ServingCertificates
from gas.extender.wire import decode_binding, decode_filter, encode_binding_result, encode_filter_result
from gas.objects.stored import ObjectMeta, Pod
from gas.values.errors import GasError


async def answer_all(body: bytes) -> bytes:
    args = decode_filter(body)
    if args.nodes is None:
        return encode_filter_result(node_names=args.node_names or [])
    return encode_filter_result(node_names=[sent.node.name for sent in args.nodes], nodes=args.nodes)


def bind_in(api: ApiServer) -> Verb:
    async def bind(body: bytes) -> bytes:
        args = decode_binding(body)
        annotations = {names.CONTAINER_CARDS: "card0", names.TIMESTAMP: str(time.time_ns())}
        try:
            pod = Pod(metadata=ObjectMeta(name=args.pod_name, namespace=args.pod_namespace, uid=args.pod_uid))
            await bind_pod(api, pod, args.node, annotations)
        except GasError as error:
            return encode_binding_result(error=str(error))
        return encode_binding_result()

    return bind


async def run(arguments: argparse.Namespace) -> None:
    metrics = Metrics("bare")
    files = CertificateFiles(arguments.cert, arguments.key, arguments.cacert)
    shutdown = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, shutdown.set)
    with listen("127.0.0.1", arguments.port, flag="port") as socket:
        certificates = ServingCertificates(files, metrics)
        api = await connect(str(arguments.kubeconfig))
        verbs = {"filter": ServedVerb(answer_all), "bind": ServedVerb(bind_in(api), is_undisturbed=True)}
        app = extender_app(verbs, metrics, max_body=64 * 2**20, body_timeout=10)
        port = Port(app=app, socket=socket, tls=certificates, keep_alive=SCHEDULER_KEEP_ALIVE)
        try:
            await serve([port], shutdown, graceful_timeout=1)
        finally:
            await api.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    for name in ("cert", "key", "cacert", "kubeconfig"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    asyncio.run(run(parser.parse_args()))

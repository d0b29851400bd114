"""Run the extender as a process: sockets, certificates, signals, and the order of starting and stopping."""

import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from gas.cluster.connection import connect
from gas.daemon.command import stop_on_signals
from gas.daemon.listening import MOST_ADMISSION_CONNECTIONS, MOST_SCHEDULER_CONNECTIONS, listen
from gas.daemon.plain_port import plain_app
from gas.daemon.serving import PLAIN_KEEP_ALIVE, SCHEDULER_KEEP_ALIVE, Port, serve_with
from gas.extender.admission.flags import AdmissionFlags
from gas.extender.assembly import Extender
from gas.extender.debug import books_json, decisions_json, refusals_json
from gas.extender.flags import Flags
from gas.extender.gauges import ClusterGauges
from gas.extender.metrics import Metrics
from gas.extender.server import extender_app
from gas.extender.tls import CertificateFiles, CertificateFlags, ServingCertificates
from gas.values.timing import SYSTEM_TIMING

logger = logging.getLogger(__name__)

KUBE_SCHEDULERS = frozenset({"kubernetes", "kube-scheduler"})
"""Names in certificates of kube-scheduler that the cluster's authority signs. The original's configurator gives it the
authority's own, which kubeadm names kubernetes."""

BODY_TIMEOUT = 10.0  # most seconds from a request's headers to the end of its body, which a scheduler sends at once


async def run_extender(flags: Flags, version: str) -> None:
    """Serve until SIGTERM or SIGINT, then finish the requests in progress. Raises GasError if it cannot start."""
    metrics = Metrics(version)
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(await connect(flags.kube_config, qps=flags.qps, burst=flags.burst))
        files, allowed_names = clients(flags, api.authority)
        certificates = ServingCertificates(files, metrics, allowed_names=allowed_names)
        scheduler_socket = stack.enter_context(
            listen(flags.bind_address, flags.port, flag="port", most=MOST_SCHEDULER_CONNECTIONS)
        )
        plain_socket = stack.enter_context(listen(flags.metrics_address, flags.metrics_port, flag="metrics-port"))
        extender = Extender(api, flags, metrics)

        def stop(signal_name: str) -> None:
            logger.info("%s: finishing requests in progress", signal_name)
            extender.readiness.stop()  # at once, so that a Service sends nothing new

        stopping = stop_on_signals(stop)
        ports = [
            Port(
                app=extender_app(extender.verbs, metrics, max_body=flags.max_request_bytes, body_timeout=BODY_TIMEOUT),
                socket=scheduler_socket,
                tls=certificates,
                keep_alive=SCHEDULER_KEEP_ALIVE,
            ),
            Port(
                app=plain_app(
                    why_not_ready=extender.readiness.why_not_serving,
                    registry=metrics.registry,
                    series=ClusterGauges(
                        extender.decider, decides=extender.readiness.may_act, now=SYSTEM_TIMING.seconds
                    ),
                    documents={
                        "/debug/books": lambda: books_json(extender.decider),
                        "/debug/refusals": lambda: refusals_json(extender.decider.refusals),
                        "/debug/decisions": lambda: decisions_json(extender.decider.decisions),
                    }
                    | extender.documents,
                ),
                socket=plain_socket,
                tls=None,
                keep_alive=PLAIN_KEEP_ALIVE,
            ),
        ]
        watched = [certificates]
        admission = flags.of(AdmissionFlags)
        if admission.port and extender.webhooks:
            from gas.extender.admission.app import AdmissionMetrics, admission_app

            admission_certificates = ServingCertificates(
                admission_files(flags), metrics, allowed_names=admission.client_names
            )
            admission_socket = stack.enter_context(
                listen(flags.bind_address, admission.port, flag="admission-port", most=MOST_ADMISSION_CONNECTIONS)
            )
            ports.append(
                Port(
                    app=admission_app(extender.webhooks, AdmissionMetrics(metrics.registry)),
                    socket=admission_socket,
                    tls=admission_certificates,
                    keep_alive=SCHEDULER_KEEP_ALIVE,  # the API server closes idle connections after 90 s, as well
                )
            )
            watched.append(admission_certificates)
            logger.info("serving the API server's admission webhooks on port %d", admission.port)
        logger.info(
            "gas-extender %s serves kube-scheduler on port %d, and health, metrics and the ledger on port %d",
            version,
            scheduler_socket.getsockname()[1],
            plain_socket.getsockname()[1],
            extra={"apiserver": api.url},
        )
        await serve_with(
            ports,
            stopping,
            graceful_timeout=flags.shutdown_timeout,
            background=[extender.run(), *(each.watch() for each in watched)],
            finish=lambda: extender.finish(flags.shutdown_timeout),
        )
    logger.info("stopped")


def clients(flags: Flags, cluster_authority: str | bytes | None) -> tuple[CertificateFiles, frozenset[str]]:
    """Return the files of kube-scheduler's port, and the names in clients' certificates that may call.

    Where --cacert is missing, as in a Secret of ``kubectl create secret tls``, the cluster's authority counts. It signs
    the certificate of every kubelet as well, so without --allowed-names only kube-scheduler may call.
    """
    files = CertificateFiles(flags.cert, flags.key, flags.cacert)
    try:
        flags.cacert.stat()
    except FileNotFoundError:
        if cluster_authority is not None:
            names = flags.allowed_names or KUBE_SCHEDULERS
            logger.warning(
                "--cacert %s is missing: clients need a certificate of the cluster's authority, and one of the names"
                " %s in it; better give kube-scheduler's certificate an authority of its own: gas-configurator",
                flags.cacert,
                ", ".join(sorted(names)),
            )
            if isinstance(cluster_authority, str):
                return replace(files, cacert=Path(cluster_authority)), names
            return replace(files, content=cluster_authority.decode), names
    except OSError:
        pass  # reading it says why it cannot be used
    return files, flags.allowed_names


def admission_files(flags: Flags) -> CertificateFiles:
    """Return the files of the admission port: the scheduler's certificate and key unless others are given."""
    admission = flags.of(AdmissionFlags)
    return CertificateFiles(
        admission.certificate or flags.cert,
        admission.key or flags.key,
        admission.client_ca,
        CertificateFlags(
            cert="admission-certificate" if admission.certificate else "cert",
            key="admission-key" if admission.key else "key",
            cacert="admission-client-ca",
            names="admission-client-names",
        ),
    )

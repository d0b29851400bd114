"""Find the admission webhooks of gas at the API server, and connect to them as the API server would."""

from __future__ import annotations

import asyncio
import base64
import binascii
from dataclasses import replace

from gas.cluster.connection import ApiServer
from gas.cluster.listing import Lister
from gas.doctor.gather.calls import ClientFiles, connect, find_service
from gas.doctor.objects import RegisteredWebhook, WebhookConfiguration
from gas.doctor.snapshot import ServiceSeen, Webhook

SUFFIX = ".pods.gas"
"""The end of every name of these webhooks. Names of objects and Services differ between installations."""

_KINDS = ("validatingwebhookconfiguration", "mutatingwebhookconfiguration")


async def find_webhooks(api: ApiServer, timeout: float) -> tuple[Webhook, ...]:
    """Return the webhooks, each with its Service and the outcome of a TLS connection.

    timeout  seconds for each connection

    Raises ApiRefused and ApiUnavailable if they cannot be listed.
    """
    found = []
    for kind in _KINDS:
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}s"
        for each in (await Lister(api, path, WebhookConfiguration).fetch()).objects:
            ours = [webhook for webhook in each.webhooks or () if webhook.name.endswith(SUFFIX)]
            found += [_call(api, kind, each.metadata.name, webhook, timeout) for webhook in ours]
    return tuple(await asyncio.gather(*found))


async def _call(
    api: ApiServer, kind: str, configuration: str, registered: RegisteredWebhook, timeout: float
) -> Webhook:
    client = registered.client_config
    called = client.service
    webhook = Webhook(
        kind=kind,
        configuration=configuration,
        name=registered.name,
        path=called.path if called is not None else "/" + client.url.partition("://")[2].partition("/")[2],
        policy=registered.failure_policy,
        reinvocation=registered.reinvocation_policy,
        timeout=registered.timeout_seconds,
        rules=tuple(registered.rules or ()),
        selectors={
            name: selector
            for name, selector in (
                ("namespaceSelector", registered.namespace_selector),
                ("objectSelector", registered.object_selector),
            )
            if selector
        },
        conditions=tuple(each.expression for each in registered.match_conditions or ()),
        bundle=_decoded(client.ca_bundle),
    )
    if called is None:
        return replace(webhook, failure="it is called by a URL, which the doctor does not try")
    service = await find_service(api, called.namespace, called.name)
    webhook = replace(webhook, service=service)
    if not isinstance(service, ServiceSeen) or not service.exists:
        return webhook
    files = ClientFiles(certificate=None, key=None, authority=webhook.bundle)
    failures = []
    for address in filter(None, (service.cluster_address, *service.ready)):
        shown = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
        presented = await connect(address, f"{called.name}.{called.namespace}.svc", files, timeout)
        if not isinstance(presented, str):
            return replace(
                webhook,
                connected=shown,
                server_certificate=presented.certificate,
                not_verified=presented.not_verified,
            )
        failures.append(f"{shown}: {presented}")
    return replace(webhook, failure="; ".join(failures) or "its Service has no address")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""

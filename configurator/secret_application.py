"""The Secret, put into the cluster."""

from __future__ import annotations

from pathlib import Path

from configurator.extender_secret import SecretName


async def apply_secret(kubeconfig: Path, secret: SecretName, manifest: bytes) -> None:
    """Made, or changed where it differs: twice is once. Raises GasError."""
    from gas.cluster.connection import connect

    api = await connect(str(kubeconfig), explicit=True, user_agent="gas-configurator")
    try:
        await api.request(
            "PATCH",
            f"/api/v1/namespaces/{secret.namespace}/secrets/{secret.name}",
            query={"fieldManager": "gas-configurator", "force": "true"},
            body=manifest,
            content_type="application/apply-patch+yaml",
        )
    finally:
        await api.close()

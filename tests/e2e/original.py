"""The objects that the original's users have applied, as far as they matter to an upgrade."""

from __future__ import annotations

IMAGE = "intel/gpu-extender"

MANIFESTS = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: gpu-aware-scheduling-service-account}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: gas-handler}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch, update, patch]}
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch, patch]}
- {apiGroups: [""], resources: [bindings, pods/binding], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: handle-gas}
subjects: [{kind: ServiceAccount, name: gpu-aware-scheduling-service-account, namespace: default}]
roleRef: {kind: ClusterRole, name: gas-handler, apiGroup: rbac.authorization.k8s.io}
---
apiVersion: v1
kind: Service
metadata: {name: gas-service}
spec: {selector: {app: gas}, type: ClusterIP, ports: [{port: 9001}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: gpu-aware-scheduling, labels: {app: gas}}
spec:
  replicas: 1
  selector: {matchLabels: {app: gas}}
  template:
    metadata: {labels: {app: gas}}
    spec:
      serviceAccountName: gpu-aware-scheduling-service-account
      containers:
      - name: gasext
        image: intel/gpu-extender
        command:
        - /extender
        - --cert=/gas/cert/tls.crt
        - --key=/gas/cert/tls.key
        - --cacert=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt
        - --v=4
        securityContext: {runAsUser: 10001, runAsNonRoot: true}
        volumeMounts: [{name: certs, mountPath: /gas/cert}]
      volumes: [{name: certs, secret: {secretName: extender-secret}}]
"""
"""Names, selectors, role and command of the original's manifests, and fields that the manifests of deploy/ lack."""

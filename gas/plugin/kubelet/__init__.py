"""Kubelet's gRPC APIs: the plugin's sockets, registration and calls, and kubelet's PodResources."""

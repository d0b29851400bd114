"""Kubelet's gRPC, both ways: the plugin's sockets, registration, calls, and the list of what pods have."""

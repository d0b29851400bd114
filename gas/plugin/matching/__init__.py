"""Find the container behind each call of kubelet, and reply to the call."""

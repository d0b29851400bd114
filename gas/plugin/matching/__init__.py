"""For which pod and container kubelet is asking, and the answer."""

"""Cards as kubelet's devices: their ids, and what a container gets of them."""

"""Names of Aliyun's vocabulary, those of its scheduler extender and its device plugin."""

from __future__ import annotations

PREFIX = "aliyun.com/"
GPU_MEM = PREFIX + "gpu-mem"
"""Resource that pods request: memory of one card, in units. One device id stands for each unit."""
GPU_COUNT = PREFIX + "gpu-count"
"""Resource of nodes: the number of cards."""

UNITS = GPU_MEM.removeprefix(PREFIX)
"""The resource as ledgers name it."""

# Pod annotations, written with the Binding.
INDEX = "ALIYUN_COM_GPU_MEM_IDX"
"""The number N of ``cardN``."""
ID = "ALIYUN_GPU_ID"
"""The same; the name in Aliyun's document, where its code has the one above."""
POD = "ALIYUN_COM_GPU_MEM_POD"
"""The units that the pod takes of its card."""
CARD = "ALIYUN_COM_GPU_MEM_DEV"
"""The units that the card has."""
ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
"""Nanoseconds since the epoch."""
ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
"""``false``, and ``true`` once the containers have got the card."""

CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"
"""Variable of a container: the units that it requests. INDEX, POD and CARD are variables as well."""

WRITTEN_ANNOTATIONS = frozenset({INDEX, ID, POD, CARD, ASSUME_TIME, ASSIGNED})

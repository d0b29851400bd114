"""The layouts and numbers of the requests to graphics drivers are those of the kernel's own headers."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gas.plugin.discovery import render_node

EXPECTED = {
    "DRM_IOCTL_I915_QUERY": render_node.I915_QUERY,
    "DRM_I915_QUERY_MEMORY_REGIONS": render_node.I915_MEMORY_REGIONS,
    "I915_MEMORY_CLASS_DEVICE": render_node.LOCAL_MEMORY,
    "DRM_IOCTL_XE_DEVICE_QUERY": render_node.XE_DEVICE_QUERY,
    "DRM_XE_DEVICE_QUERY_MEM_REGIONS": render_node.XE_MEM_REGIONS,
    "DRM_XE_MEM_REGION_CLASS_VRAM": render_node.LOCAL_MEMORY,
}
"""Constants, as a C expression."""

FILLED = {
    "struct drm_i915_query": (
        "{.num_items = 1, .flags = 2, .items_ptr = 3}",
        render_node.I915_QUERY_LAYOUT.pack(1, 2, 3),
    ),
    "struct drm_i915_query_item": (
        "{.query_id = 1, .length = -2, .flags = 3, .data_ptr = 4}",
        render_node.I915_ITEM_LAYOUT.pack(1, -2, 3, 4),
    ),
    "struct drm_i915_query_memory_regions": ("{.num_regions = 7}", render_node.I915_HEADER_LAYOUT.pack(7)),
    "struct drm_i915_memory_region_info": (
        "{.region = {.memory_class = 1}, .probed_size = 1ULL << 40}",
        render_node.REGION_LAYOUT.pack(1, 2**40),
    ),
    "struct drm_xe_device_query": (
        "{.extensions = 1, .query = 2, .size = 3, .data = 4}",
        render_node.XE_QUERY_LAYOUT.pack(1, 2, 3, 4),
    ),
    "struct drm_xe_query_mem_regions": ("{.num_mem_regions = 7}", render_node.XE_HEADER_LAYOUT.pack(7)),
    "struct drm_xe_mem_region": (
        "{.mem_class = 1, .total_size = 1ULL << 40}",
        render_node.REGION_LAYOUT.pack(1, 2**40),
    ),
}
"""A structure, a value of it in C, and the same value as this project packs it."""

PROGRAM = """
#include <stddef.h>
#include <stdio.h>
#include "i915_drm.h"
#include "xe_drm.h"

static void print_bytes(const void *start, size_t size)
{
    for (size_t i = 0; i < size; i++)
        printf("%02x", ((const unsigned char *)start)[i]);
    printf("\\n");
}

int main(void)
{
BODY
    return 0;
}
"""


def test_layouts_and_numbers_are_those_of_the_kernels_headers(binaries: Path, tmp_path: Path) -> None:
    lines = [f'    printf("%llu\\n", (unsigned long long)({expression}));' for expression in EXPECTED]
    lines += [
        f"    {{ {structure} value = {value}; print_bytes(&value, sizeof(value)); }}"
        for structure, (value, _) in FILLED.items()
    ]
    source, program = tmp_path / "layouts.c", tmp_path / "layouts"
    source.write_text(PROGRAM.replace("BODY", "\n".join(lines)))
    # Headers of the kernel itself, not those that are installed for programs, mark pointers with __user.
    headers = f"-I{binaries / 'drm-headers'}"
    subprocess.run(["gcc", "-Wall", "-Werror", "-D__user=", headers, "-o", program, source], check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    found = dict(zip(EXPECTED, map(int, printed), strict=False))
    assert found == EXPECTED
    filled = dict(zip(FILLED, map(bytes.fromhex, printed[len(EXPECTED) :]), strict=True))
    assert filled == {structure: packed for structure, (_, packed) in FILLED.items()}

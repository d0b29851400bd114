/* Refuses to allocate more than the variables of HAMi-core or MPS say; loaded by LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define OUT_OF_MEMORY 2

static size_t used;

static size_t limit(void)
{
	const char *hami = getenv("CUDA_DEVICE_MEMORY_LIMIT_0");
	const char *mps = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");

	if (mps)
		hami = strchr(mps, '=') + 1;
	return hami ? strtoull(hami, NULL, 10) << 20 : SIZE_MAX;
}

int cuMemAlloc_v2(void **pointer, size_t bytes)
{
	int (*real)(void **, size_t) = (int (*)(void **, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");

	if (used + bytes > limit())
		return OUT_OF_MEMORY;
	used += bytes;
	return real(pointer, bytes);
}

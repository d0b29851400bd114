/* Refuses to allocate more than CUDA_DEVICE_MEMORY_LIMIT_0 says, as HAMi-core does; loaded by LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#define OUT_OF_MEMORY 2

static size_t used;

int cuMemAlloc_v2(void **pointer, size_t bytes)
{
	const char *limit = getenv("CUDA_DEVICE_MEMORY_LIMIT_0");
	int (*real)(void **, size_t) = (int (*)(void **, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");

	if (limit && used + bytes > strtoull(limit, NULL, 10) << 20)
		return OUT_OF_MEMORY;
	used += bytes;
	return real(pointer, bytes);
}

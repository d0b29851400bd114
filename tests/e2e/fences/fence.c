/* Refuses to allocate more than the variables of HAMi-core or MPS, or Gemini's file, say; loaded by LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUT_OF_MEMORY 2

static size_t used;

/* The bytes of this pod in the file of its card: its first line is a number, each other a pod with its share. */
static size_t gemini_limit(const char *pod)
{
	char path[256], name[256];
	size_t bytes;
	FILE *file;

	snprintf(path, sizeof(path), "/shares/%s", getenv("NVIDIA_VISIBLE_DEVICES"));
	if ((file = fopen(path, "r")) == NULL || fscanf(file, "%*d") != 0)
		return 0;
	while (fscanf(file, "%255s %*s %*s %zu", name, &bytes) == 2)
		if (strcmp(name, pod) == 0)
			return bytes;
	return 0;
}

static size_t limit(void)
{
	const char *hami = getenv("CUDA_DEVICE_MEMORY_LIMIT_0"), *pod = getenv("POD_NAME");
	const char *mps = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");

	if (mps)
		hami = strchr(mps, '=') + 1;
	if (hami)
		return strtoull(hami, NULL, 10) << 20;
	return pod ? gemini_limit(pod) : SIZE_MAX;
}

int cuMemAlloc_v2(void **pointer, size_t bytes)
{
	int (*real)(void **, size_t) = (int (*)(void **, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");

	if (used + bytes > limit())
		return OUT_OF_MEMORY;
	used += bytes;
	return real(pointer, bytes);
}

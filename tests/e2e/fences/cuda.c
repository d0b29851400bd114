/* The driver's library, as far as a program needs it that only allocates: a card that is never full. */
#include <stddef.h>

int cuMemAlloc_v2(void **pointer, size_t bytes)
{
	*pointer = (void *)bytes;
	return 0;
}

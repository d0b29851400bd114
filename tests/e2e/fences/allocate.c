/* allocate MIB...: allocates these amounts one after the other, and prints the driver's result of each. */
#include <stdio.h>
#include <stdlib.h>

int cuMemAlloc_v2(void **pointer, size_t bytes);

int main(int count, char **amounts)
{
	for (int each = 1; each < count; each++) {
		void *pointer;

		printf("%d\n", cuMemAlloc_v2(&pointer, strtoull(amounts[each], NULL, 10) << 20));
	}
	return 0;
}

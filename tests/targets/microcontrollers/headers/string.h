/* What generated C needs of <string.h>, for compilers without a C library. */
#ifndef STRING_H
#define STRING_H

#include <stddef.h>

void *memcpy(void *restrict target, const void *restrict source, size_t size);
void *memset(void *target, int value, size_t size);

#endif

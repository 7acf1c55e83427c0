/* What CMSIS-NN copies with: a few bytes at a time, which must not become calls. */
#include <stddef.h>
void *memcpy(void *restrict to, const void *restrict from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
#define memcpy __builtin_memcpy
#define memset __builtin_memset

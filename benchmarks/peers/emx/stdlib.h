#include <stddef.h>
void *malloc(size_t bytes);
void free(void *block);

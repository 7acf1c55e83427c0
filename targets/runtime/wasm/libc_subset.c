/* With the other files of this folder: what modules need of a C library. With these they are linked without one: before a first
 * network it would have to be compiled, for half a minute. Where a network needs more, they are left out. */
#include <string.h>

/* From the linker: calls the functions that run first. */
void __wasm_call_ctors(void);

/* Called by the program around a module, once. */
void _initialize(void);

void _initialize(void) { __wasm_call_ctors(); }

int strcmp(const char *left, const char *right) {
    for (; *left == *right && *left != '\0'; left++) right++;
    return (unsigned char)*left - (unsigned char)*right;
}

int memcmp(const void *left, const void *right, size_t bytes) {
    const unsigned char *l = left, *r = right;
    for (size_t i = 0; i < bytes; i++)
        if (l[i] != r[i]) return l[i] - r[i];
    return 0;
}

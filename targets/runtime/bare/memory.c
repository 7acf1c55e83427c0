/* Defines the functions that LLVM calls on Arm instead of memcpy and memset, which every program has. */
#include <stddef.h>

#ifdef __arm__
void *memcpy(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);

#define COPY(name) \
    void name(void *to, const void *from, size_t bytes); \
    void name(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
#define SET(name) \
    void name(void *to, size_t bytes, int value); \
    void name(void *to, size_t bytes, int value) { memset(to, value, bytes); }
#define CLEAR(name) \
    void name(void *to, size_t bytes); \
    void name(void *to, size_t bytes) { memset(to, 0, bytes); }

COPY(__aeabi_memcpy) COPY(__aeabi_memcpy4) COPY(__aeabi_memcpy8)
SET(__aeabi_memset) SET(__aeabi_memset4) SET(__aeabi_memset8)
CLEAR(__aeabi_memclr) CLEAR(__aeabi_memclr4) CLEAR(__aeabi_memclr8)
#else
typedef int nnefc_nothing;
#endif

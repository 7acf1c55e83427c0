/* inttypes.h of Android, behind the compiler's, which includes it: formats of integers of 64 bits. */
#ifndef NNEFC_BIONIC_INTTYPES_H
#define NNEFC_BIONIC_INTTYPES_H
#include <stdint.h>
#if defined(__LP64__)
#define PRId64 "ld"
#define PRIu64 "lu"
#define PRIx64 "lx"
#else
#define PRId64 "lld"
#define PRIu64 "llu"
#define PRIx64 "llx"
#endif
#define PRId32 "d"
#define PRIu32 "u"
#define PRIx32 "x"
#endif

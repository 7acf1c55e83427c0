/* Features of Arm processors, as the operating system reports them. */
#include "machine/cpu.h"

#include <stddef.h>
#include <string.h>

#if defined(__aarch64__) || defined(__arm__)

#if defined(__linux__)
#include <sys/auxv.h>
#if defined(__aarch64__)
#include <sys/prctl.h>
#endif

#if !defined(AT_HWCAP2)
#define AT_HWCAP2 26
#endif

/* Bits of AT_HWCAP and AT_HWCAP2, part of Linux' binary interface. */
static const struct {
    const char *name;
    unsigned long vector, bit;
} features[] = {
#if defined(__aarch64__)
    {"neon", AT_HWCAP, 1},     {"lse", AT_HWCAP, 8},  {"fullfp16", AT_HWCAP, 10}, {"rdm", AT_HWCAP, 12},
    {"dotprod", AT_HWCAP, 20}, {"sve", AT_HWCAP, 22}, {"fp16fml", AT_HWCAP, 23},  {"sve2", AT_HWCAP2, 1},
    {"i8mm", AT_HWCAP2, 13},   {"bf16", AT_HWCAP2, 14}, {"sme", AT_HWCAP2, 23},
#else
    {"neon", AT_HWCAP, 12},    {"vfp4", AT_HWCAP, 16},    {"hwdiv-arm", AT_HWCAP, 17}, {"fullfp16", AT_HWCAP, 23},
    {"dotprod", AT_HWCAP, 24}, {"fp16fml", AT_HWCAP, 25}, {"bf16", AT_HWCAP, 26},      {"i8mm", AT_HWCAP, 27},
#endif
};

/* Whether this is a 32-bit program on a processor of version 8, whose vectors round and compare in ways of their own: no bit
 * says so, but the name of the platform does, "v8l". */
static bool is_version_8(void) {
    const char *platform = (const char *)getauxval(AT_PLATFORM);
    return platform != NULL && (strncmp(platform, "v8", 2) == 0 || strncmp(platform, "aarch64", 7) == 0);
}

#if defined(__aarch64__)
/* Bytes of a vector of SVE in this thread; 0 where there is none. */
static int vector_bytes(void) {
    enum { GET_LENGTH = 51, BYTES = 0xffff }; /* the request, of Linux 4.15, and the part of its result */
    int result = prctl(GET_LENGTH);
    return result < 0 ? 0 : result & BYTES;
}
#endif

bool nnefc_cpu_has(const char *feature) {
    if (strcmp(feature, "fp-armv8") == 0) return is_version_8();
#if defined(__aarch64__)
    if (strcmp(feature, "sve256") == 0) return vector_bytes() == 32;
    if (strcmp(feature, "sve512") == 0) return vector_bytes() == 64;
#endif
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (strcmp(feature, features[i].name) == 0) return getauxval(features[i].vector) >> features[i].bit & 1;
    return false;
}

#elif defined(__APPLE__)
#include <sys/sysctl.h>

static const struct {
    const char *name, *key;
} features[] = {
    {"neon", "hw.optional.neon"},
    {"dotprod", "hw.optional.arm.FEAT_DotProd"},
    {"fullfp16", "hw.optional.neon_fp16"},
    {"fp16fml", "hw.optional.armv8_2_fhm"},
    {"lse", "hw.optional.armv8_1_atomics"},
    {"rdm", "hw.optional.arm.FEAT_RDM"},
    {"bf16", "hw.optional.arm.FEAT_BF16"},
    {"i8mm", "hw.optional.arm.FEAT_I8MM"},
};

/* The first of Apple's processors for computers has these, also where macOS is too old to have a name for them. */
static bool every_mac_has(const char *feature) { return strcmp(feature, "dotprod") == 0 || strcmp(feature, "rdm") == 0; }

bool nnefc_cpu_has(const char *feature) {
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        if (strcmp(feature, features[i].name) != 0) continue;
        int value = 0;
        size_t bytes = sizeof value;
        if (sysctlbyname(features[i].key, &value, &bytes, NULL, 0) != 0) return every_mac_has(feature);
        return value != 0;
    }
    return false;
}

#else

bool nnefc_cpu_has(const char *feature) { return strcmp(feature, "neon") == 0; }

#endif
#endif

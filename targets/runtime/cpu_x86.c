/* Features of x86 processors, from the CPUID instruction. */
#include "cpu.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

enum cpu_register { EAX, EBX, ECX, EDX };

/* State that the operating system must save and restore for the instructions to be usable: bits of XCR0. */
enum { SSE_STATE = 0x0, AVX_STATE = 0x6, AVX512_STATE = 0xe6, AMX_STATE = 0x60000 };

static const struct {
    const char *name;
    uint32_t leaf, subleaf;
    enum cpu_register in;
    uint32_t bit;
    uint32_t state;
} features[] = {
    {"sse", 1, 0, EDX, 25, SSE_STATE},
    {"sse2", 1, 0, EDX, 26, SSE_STATE},
    {"sse3", 1, 0, ECX, 0, SSE_STATE},
    {"pclmul", 1, 0, ECX, 1, SSE_STATE},
    {"ssse3", 1, 0, ECX, 9, SSE_STATE},
    {"cx16", 1, 0, ECX, 13, SSE_STATE},
    {"sse4.1", 1, 0, ECX, 19, SSE_STATE},
    {"sse4.2", 1, 0, ECX, 20, SSE_STATE},
    {"movbe", 1, 0, ECX, 22, SSE_STATE},
    {"popcnt", 1, 0, ECX, 23, SSE_STATE},
    {"aes", 1, 0, ECX, 25, SSE_STATE},
    {"fma", 1, 0, ECX, 12, AVX_STATE},
    {"avx", 1, 0, ECX, 28, AVX_STATE},
    {"f16c", 1, 0, ECX, 29, AVX_STATE},
    {"bmi", 7, 0, EBX, 3, SSE_STATE},
    {"avx2", 7, 0, EBX, 5, AVX_STATE},
    {"bmi2", 7, 0, EBX, 8, SSE_STATE},
    {"avx512f", 7, 0, EBX, 16, AVX512_STATE},
    {"avx512dq", 7, 0, EBX, 17, AVX512_STATE},
    {"adx", 7, 0, EBX, 19, SSE_STATE},
    {"avx512ifma", 7, 0, EBX, 21, AVX512_STATE},
    {"avx512cd", 7, 0, EBX, 28, AVX512_STATE},
    {"sha", 7, 0, EBX, 29, SSE_STATE},
    {"avx512bw", 7, 0, EBX, 30, AVX512_STATE},
    {"avx512vl", 7, 0, EBX, 31, AVX512_STATE},
    {"avx512vbmi", 7, 0, ECX, 1, AVX512_STATE},
    {"avx512vbmi2", 7, 0, ECX, 6, AVX512_STATE},
    {"gfni", 7, 0, ECX, 8, SSE_STATE},
    {"vaes", 7, 0, ECX, 9, AVX_STATE},
    {"vpclmulqdq", 7, 0, ECX, 10, AVX_STATE},
    {"avx512vnni", 7, 0, ECX, 11, AVX512_STATE},
    {"avx512bitalg", 7, 0, ECX, 12, AVX512_STATE},
    {"avx512vpopcntdq", 7, 0, ECX, 14, AVX512_STATE},
    {"amx-bf16", 7, 0, EDX, 22, AMX_STATE},
    {"avx512fp16", 7, 0, EDX, 23, AVX512_STATE},
    {"amx-tile", 7, 0, EDX, 24, AMX_STATE},
    {"amx-int8", 7, 0, EDX, 25, AMX_STATE},
    {"avxvnni", 7, 1, EAX, 4, AVX_STATE},
    {"avx512bf16", 7, 1, EAX, 5, AVX512_STATE},
    {"lzcnt", 0x80000001u, 0, ECX, 5, SSE_STATE},
    {"sse4a", 0x80000001u, 0, ECX, 6, SSE_STATE},
};

static uint32_t saved_state(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0; /* the system has not enabled XGETBV */
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

bool nnefc_cpu_has(const char *feature) {
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        if (strcmp(feature, features[i].name) != 0) continue;
        unsigned registers[4];
        if (!__get_cpuid_count(features[i].leaf, features[i].subleaf, &registers[EAX], &registers[EBX], &registers[ECX],
                               &registers[EDX]))
            return false;
        return (registers[features[i].in] >> features[i].bit & 1) &&
               (saved_state() & features[i].state) == features[i].state;
    }
    return false;
}

#endif

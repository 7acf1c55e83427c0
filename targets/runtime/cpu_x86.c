/* Features of x86 processors, from the CPUID instruction. */
#include "cpu.h"

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

enum cpu_register { EAX, EBX, ECX, EDX };

/* State that the operating system must save and restore for the instructions to be usable: bits of XCR0. */
enum { ANY_STATE = 0x0, AVX_STATE = 0x6, AVX512_STATE = 0xe6, TILE_STATE = 0x60000, APX_STATE = 0x80000 };

/* Those with two lines need both. */
static const struct {
    const char *name;
    uint32_t leaf, subleaf;
    enum cpu_register in;
    uint32_t bit;
    uint32_t state;
} features[] = {
    {"sse3", 1, 0, ECX, 0, ANY_STATE},
    {"ssse3", 1, 0, ECX, 9, ANY_STATE},
    {"fma", 1, 0, ECX, 12, AVX_STATE},
    {"sse4.1", 1, 0, ECX, 19, ANY_STATE},
    {"sse4.2", 1, 0, ECX, 20, ANY_STATE},
    {"movbe", 1, 0, ECX, 22, ANY_STATE},
    {"popcnt", 1, 0, ECX, 23, ANY_STATE},
    {"avx", 1, 0, ECX, 28, AVX_STATE},
    {"f16c", 1, 0, ECX, 29, AVX_STATE},
    {"bmi", 7, 0, EBX, 3, ANY_STATE},
    {"avx2", 7, 0, EBX, 5, AVX_STATE},
    {"bmi2", 7, 0, EBX, 8, ANY_STATE},
    {"avx512f", 7, 0, EBX, 16, AVX512_STATE},
    {"avx512dq", 7, 0, EBX, 17, AVX512_STATE},
    {"avx512ifma", 7, 0, EBX, 21, AVX512_STATE},
    {"avx512cd", 7, 0, EBX, 28, AVX512_STATE},
    {"avx512bw", 7, 0, EBX, 30, AVX512_STATE},
    {"avx512vl", 7, 0, EBX, 31, AVX512_STATE},
    {"avx512vbmi", 7, 0, ECX, 1, AVX512_STATE},
    {"avx512vbmi2", 7, 0, ECX, 6, AVX512_STATE},
    {"gfni", 7, 0, ECX, 8, ANY_STATE},
    {"avx512vnni", 7, 0, ECX, 11, AVX512_STATE},
    {"avx512bitalg", 7, 0, ECX, 12, AVX512_STATE},
    {"avx512vpopcntdq", 7, 0, ECX, 14, AVX512_STATE},
    {"avx512fp16", 7, 0, EDX, 23, AVX512_STATE},
    {"amx-bf16", 7, 0, EDX, 22, TILE_STATE},
    {"amx-tile", 7, 0, EDX, 24, TILE_STATE},
    {"amx-int8", 7, 0, EDX, 25, TILE_STATE},
    {"avxvnni", 7, 1, EAX, 4, AVX_STATE},
    {"avx512bf16", 7, 1, EAX, 5, AVX512_STATE},
    {"avxifma", 7, 1, EAX, 23, AVX_STATE},
    {"avxvnniint8", 7, 1, EDX, 4, AVX_STATE},
    {"avxneconvert", 7, 1, EDX, 5, AVX_STATE},
    {"avxvnniint16", 7, 1, EDX, 10, AVX_STATE},
    {"avx10.1", 7, 1, EDX, 19, AVX512_STATE},
    {"avx10.2", 7, 1, EDX, 19, AVX512_STATE},
    {"egpr", 7, 1, EDX, 21, APX_STATE},
    {"push2pop2", 7, 1, EDX, 21, APX_STATE},
    {"ppx", 7, 1, EDX, 21, APX_STATE},
    {"cf", 7, 1, EDX, 21, APX_STATE},
    {"ccmp", 7, 1, EDX, 21, APX_STATE},
    {"ccmp", 0x29, 0, EBX, 0, APX_STATE},
    {"ndd", 7, 1, EDX, 21, APX_STATE},
    {"ndd", 0x29, 0, EBX, 0, APX_STATE},
    {"nf", 7, 1, EDX, 21, APX_STATE},
    {"nf", 0x29, 0, EBX, 0, APX_STATE},
    {"zu", 7, 1, EDX, 21, APX_STATE},
    {"zu", 0x29, 0, EBX, 0, APX_STATE},
    {"lzcnt", 0x80000001u, 0, ECX, 5, ANY_STATE},
    {"sse4a", 0x80000001u, 0, ECX, 6, ANY_STATE},
    {"xop", 0x80000001u, 0, ECX, 11, AVX_STATE},
    {"fma4", 0x80000001u, 0, ECX, 16, AVX_STATE},
    {"tbm", 0x80000001u, 0, ECX, 21, ANY_STATE},
};

/* What the processor is asked by; tests have others, with answers of their own. */
#if !defined(NNEFC_CPUID)
#define NNEFC_CPUID __get_cpuid_count
#define NNEFC_XGETBV read_xcr0

static uint32_t read_xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}
#endif

typedef struct answer {
    uint32_t in[4];
} answer;

/* What the processor says of itself; zeros if it does not know the question. */
static answer ask(uint32_t leaf, uint32_t subleaf) {
    answer a = {{0}};
    return NNEFC_CPUID(leaf, subleaf, &a.in[EAX], &a.in[EBX], &a.in[ECX], &a.in[EDX]) ? a : (answer){{0}};
}

static uint32_t saved_state(void) {
    if (!(ask(1, 0).in[ECX] >> 27 & 1)) return 0; /* the system has not enabled XGETBV */
    uint32_t state = NNEFC_XGETBV();
#if defined(__APPLE__)
    if ((state & AVX_STATE) == AVX_STATE) state |= AVX512_STATE; /* macOS begins to save it when a thread first uses it */
#endif
    return state;
}

static uint32_t avx10_version(void) { return ask(0x24, 0).in[EBX] & 0xff; }

bool nnefc_cpu_has(const char *feature) {
    uint32_t state = saved_state();
    bool known = false;
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        if (strcmp(feature, features[i].name) != 0) continue;
        answer a = ask(features[i].leaf, features[i].subleaf);
        if (!(a.in[features[i].in] >> features[i].bit & 1)) return false;
        if ((state & features[i].state) != features[i].state) return false;
        known = true;
    }
    return known && (strcmp(feature, "avx10.2") != 0 || avx10_version() >= 2);
}

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

enum { REQUEST_STATE = 0x1023, TILE_DATA = 18 }; /* Linux's ARCH_REQ_XCOMP_PERM, and a bit of XCR0 */

#if !defined(NNEFC_ARCH_PRCTL)
#define NNEFC_ARCH_PRCTL(request, argument) syscall(SYS_arch_prctl, request, argument)
#endif

/* The registers of the matrix unit are so large that Linux gives them only to processes that ask. */
bool nnefc_cpu_permit(const char *feature) {
    return strcmp(feature, "amx-tile") != 0 || NNEFC_ARCH_PRCTL(REQUEST_STATE, TILE_DATA) == 0;
}
#endif

#endif

/* Features of x86 processors, from the CPUID instruction. */
#include "machine/cpu.h"

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

enum cpu_register { EAX, EBX, ECX, EDX };

/* Where the processor says so: a leaf, a subleaf, a register. Small numbers: without pointers, the table below needs no relocations. */
enum where { BASIC_C, MORE_B, MORE_C, MORE_D, LATER_A, LATER_D, APX_B, AVX10_B, AMD_C, QUESTIONS };

static const struct {
    uint32_t leaf;
    uint8_t subleaf, in;
} questions[] = {
    [BASIC_C] = {1, 0, ECX},
    [MORE_B] = {7, 0, EBX},
    [MORE_C] = {7, 0, ECX},
    [MORE_D] = {7, 0, EDX},
    [LATER_A] = {7, 1, EAX},
    [LATER_D] = {7, 1, EDX},
    [APX_B] = {0x29, 0, EBX},
    [AVX10_B] = {0x24, 0, EBX},
    [AMD_C] = {0x80000001u, 0, ECX},
};

/* State that the operating system must save and restore for the instructions to be usable: bits of XCR0. */
enum { AVX_BITS = 0x6 };
enum state { ANY_STATE, AVX_STATE, AVX512_STATE, TILE_STATE, APX_STATE };

static const uint32_t state_bits[] = {
    [ANY_STATE] = 0x0, [AVX_STATE] = AVX_BITS, [AVX512_STATE] = 0xe6, [TILE_STATE] = 0x60000, [APX_STATE] = 0x80000,
};

/* Those with two lines need both. */
static const struct {
    char name[16];
    uint8_t where, bit, state;
} features[] = {
    {"sse3", BASIC_C, 0, ANY_STATE},
    {"ssse3", BASIC_C, 9, ANY_STATE},
    {"fma", BASIC_C, 12, AVX_STATE},
    {"sse4.1", BASIC_C, 19, ANY_STATE},
    {"sse4.2", BASIC_C, 20, ANY_STATE},
    {"movbe", BASIC_C, 22, ANY_STATE},
    {"popcnt", BASIC_C, 23, ANY_STATE},
    {"avx", BASIC_C, 28, AVX_STATE},
    {"f16c", BASIC_C, 29, AVX_STATE},
    {"bmi", MORE_B, 3, ANY_STATE},
    {"avx2", MORE_B, 5, AVX_STATE},
    {"bmi2", MORE_B, 8, ANY_STATE},
    {"avx512f", MORE_B, 16, AVX512_STATE},
    {"avx512dq", MORE_B, 17, AVX512_STATE},
    {"avx512ifma", MORE_B, 21, AVX512_STATE},
    {"avx512cd", MORE_B, 28, AVX512_STATE},
    {"avx512bw", MORE_B, 30, AVX512_STATE},
    {"avx512vl", MORE_B, 31, AVX512_STATE},
    {"avx512vbmi", MORE_C, 1, AVX512_STATE},
    {"avx512vbmi2", MORE_C, 6, AVX512_STATE},
    {"gfni", MORE_C, 8, ANY_STATE},
    {"avx512vnni", MORE_C, 11, AVX512_STATE},
    {"avx512bitalg", MORE_C, 12, AVX512_STATE},
    {"avx512vpopcntdq", MORE_C, 14, AVX512_STATE},
    {"avx512fp16", MORE_D, 23, AVX512_STATE},
    {"amx-bf16", MORE_D, 22, TILE_STATE},
    {"amx-tile", MORE_D, 24, TILE_STATE},
    {"amx-int8", MORE_D, 25, TILE_STATE},
    {"avxvnni", LATER_A, 4, AVX_STATE},
    {"avx512bf16", LATER_A, 5, AVX512_STATE},
    {"avxifma", LATER_A, 23, AVX_STATE},
    {"avxvnniint8", LATER_D, 4, AVX_STATE},
    {"avxneconvert", LATER_D, 5, AVX_STATE},
    {"avxvnniint16", LATER_D, 10, AVX_STATE},
    {"avx10.1", LATER_D, 19, AVX512_STATE},
    {"avx10.2", LATER_D, 19, AVX512_STATE},
    {"egpr", LATER_D, 21, APX_STATE},
    {"push2pop2", LATER_D, 21, APX_STATE},
    {"ppx", LATER_D, 21, APX_STATE},
    {"cf", LATER_D, 21, APX_STATE},
    {"ccmp", LATER_D, 21, APX_STATE},
    {"ccmp", APX_B, 0, APX_STATE},
    {"ndd", LATER_D, 21, APX_STATE},
    {"ndd", APX_B, 0, APX_STATE},
    {"nf", LATER_D, 21, APX_STATE},
    {"nf", APX_B, 0, APX_STATE},
    {"zu", LATER_D, 21, APX_STATE},
    {"zu", APX_B, 0, APX_STATE},
    {"lzcnt", AMD_C, 5, ANY_STATE},
    {"sse4a", AMD_C, 6, ANY_STATE},
    {"xop", AMD_C, 11, AVX_STATE},
    {"fma4", AMD_C, 16, AVX_STATE},
    {"tbm", AMD_C, 21, ANY_STATE},
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

/* The processor's answer to each question, and 2^32; 0 where it was not asked, which takes microseconds under hypervisors. */
static atomic_uint_least64_t answers[QUESTIONS];

/* What the processor says in a position; 0 if it does not know the question. */
static uint32_t ask(enum where where) {
    uint64_t answer = atomic_load_explicit(&answers[where], memory_order_relaxed);
    if (answer != 0) return (uint32_t)answer;
    uint32_t in[4];
    bool known = NNEFC_CPUID(questions[where].leaf, questions[where].subleaf, &in[EAX], &in[EBX], &in[ECX], &in[EDX]);
    answer = UINT64_C(1) << 32 | (known ? in[questions[where].in] : 0);
    atomic_store_explicit(&answers[where], answer, memory_order_relaxed);
    return (uint32_t)answer;
}

static uint32_t saved_state(void) {
    if (!(ask(BASIC_C) >> 27 & 1)) return 0; /* the system has not enabled XGETBV */
    uint32_t state = NNEFC_XGETBV();
#if defined(__APPLE__)
    if ((state & AVX_BITS) == AVX_BITS) state |= state_bits[AVX512_STATE]; /* macOS begins to save it when a thread first uses it */
#endif
    return state;
}

bool nnefc_cpu_has(const char *feature) {
    uint32_t state = saved_state();
    bool known = false;
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        if (strcmp(feature, features[i].name) != 0) continue;
        uint32_t needed = state_bits[features[i].state];
        if (!(ask(features[i].where) >> features[i].bit & 1) || (state & needed) != needed) return false;
        known = true;
    }
    return known && (strcmp(feature, "avx10.2") != 0 || (ask(AVX10_B) & 0xff) >= 2);
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

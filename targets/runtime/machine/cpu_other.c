/* Machines that say nothing of their features. An engine of WebAssembly has refused the module if it lacks one; what the dot
 * product of relaxed SIMD does with eight bits, where it is asked for seven, is tried out: it is the same in all of a program. */
#include "machine/cpu.h"

#include <stdint.h>
#include <string.h>

#if !defined(__x86_64__) && !defined(__i386__) && !defined(__aarch64__) && !defined(__arm__) && !defined(__riscv)

#if defined(NNEFC_RELAXED_DOT)
/* Without the header of intrinsics, which needs the compiler's option for relaxed SIMD for all of a file. */
typedef int8_t bytes __attribute__((vector_size(16)));
typedef int32_t words __attribute__((vector_size(16)));

/* Four products of the same bytes. */
__attribute__((target("simd128,relaxed-simd"))) static int32_t dot(int first, int second) {
    volatile int8_t left = (int8_t)first, right = (int8_t)second; /* no compiler knows what the engine will do */
    words sums = __builtin_wasm_relaxed_dot_i8x16_i7x16_add_s_i32x4((bytes){0} + left, (bytes){0} + right, (words){0});
    return sums[0];
}
#endif

bool nnefc_cpu_has(const char *feature) {
#if defined(NNEFC_RELAXED_DOT)
    if (strcmp(feature, "relaxed-udot") == 0) return dot(127, 255) == 4 * 127 * 255 && dot(-128, 255) == -4 * 128 * 255;
    if (strcmp(feature, "relaxed-sdot") == 0) return dot(127, -1) == -4 * 127 && dot(-128, -128) == 4 * 128 * 128;
#endif
#if defined(__wasm__)
    static const char *const names[] = {"relaxed-simd", "atomics"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(feature, names[i]) == 0) return true;
#endif
    (void)feature;
    return false;
}

#endif

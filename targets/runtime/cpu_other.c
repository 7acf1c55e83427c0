/* Machines that say nothing of their features. An engine of WebAssembly has refused the module if it lacks one; what the dot
 * product of relaxed SIMD does with eight bits, where it is asked for seven, is tried out: it is the same in all of a program. */
#include "cpu.h"

#include <stdint.h>
#include <string.h>

#if !defined(__x86_64__) && !defined(__i386__) && !defined(__aarch64__) && !defined(__arm__) && !defined(__riscv)

#if defined(__wasm_relaxed_simd__)
#include <wasm_simd128.h>

/* Four products of the same bytes. */
static int32_t dot(int first, int second) {
    volatile int8_t left = (int8_t)first, right = (int8_t)second; /* no compiler knows what the engine will do */
    v128_t sums = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_i8x16_splat(left), wasm_i8x16_splat(right), wasm_i32x4_const_splat(0));
    return wasm_i32x4_extract_lane(sums, 0);
}
#endif

bool nnefc_cpu_has(const char *feature) {
#if defined(__wasm_relaxed_simd__)
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

/* Machines that say nothing of their features. An engine of WebAssembly has refused the module if it lacks one. */
#include "cpu.h"

#include <string.h>

#if !defined(__x86_64__) && !defined(__i386__) && !defined(__aarch64__) && !defined(__arm__) && !defined(__riscv)

bool nnefc_cpu_has(const char *feature) {
#if defined(__wasm__)
    static const char *const names[] = {"relaxed-simd", "atomics"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(feature, names[i]) == 0) return true;
#endif
    (void)feature;
    return false;
}

#endif

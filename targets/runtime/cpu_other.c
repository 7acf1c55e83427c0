/* Machines that say nothing of their features: WebAssembly refuses a module that has instructions it does not know. */
#include "cpu.h"

#if !defined(__x86_64__) && !defined(__i386__) && !defined(__aarch64__) && !defined(__arm__) && !defined(__riscv)

bool nnefc_cpu_has(const char *feature) {
    (void)feature;
    return false;
}

#endif

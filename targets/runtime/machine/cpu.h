/* Detection of processor features. */
#ifndef NNEFC_CPU_H
#define NNEFC_CPU_H

#include <stdbool.h>

/* Whether this processor, and the operating system with it, can run the named instructions ("avx2", "dotprod", ...: LLVM's
 * names). False for names that it does not know. */
bool nnefc_cpu_has(const char *feature);

/* Asks the system for leave to use such instructions, which it may refuse; most need none. */
#if defined(__x86_64__) && defined(__linux__)
bool nnefc_cpu_permit(const char *feature);
#else
static inline bool nnefc_cpu_permit(const char *feature) {
    (void)feature;
    return true;
}
#endif

/* Tells the processor that this is a loop that waits. */
static inline void nnefc_cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("yield");
#elif defined(__riscv)
    __asm__ volatile(".4byte 0x0100000f"); /* pause; older assemblers lack the name */
#endif
}

#endif

/* How the processor treats subnormal numbers: those nearest to zero, for which many processors need a hundred times as
 * long. A mode belongs to a thread. */
#ifndef NNEFC_FLOAT_MODE_H
#define NNEFC_FLOAT_MODE_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__) || defined(__i386__)

enum { NNEFC_FLUSHES = 0x8040 }; /* of MXCSR: results that are subnormal become zero, operands count as zero */
static inline uint64_t nnefc_float_mode(void) { return __builtin_ia32_stmxcsr(); }
static inline void nnefc_set_float_mode(uint64_t mode) { __builtin_ia32_ldmxcsr((uint32_t)mode); }

#elif defined(__aarch64__)

enum { NNEFC_FLUSHES = 1 << 24 }; /* FPCR.FZ: both; half precision has a bit of its own, which stays as it is */
static inline uint64_t nnefc_float_mode(void) {
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
static inline void nnefc_set_float_mode(uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }

#elif defined(__arm__) && defined(__ARM_FP)

enum { NNEFC_FLUSHES = 1 << 24 }; /* FPSCR.FZ, of scalars; vectors are always flushed */
static inline uint64_t nnefc_float_mode(void) {
    uint32_t mode;
    __asm__ volatile("vmrs %0, fpscr" : "=r"(mode));
    return mode;
}
static inline void nnefc_set_float_mode(uint64_t mode) {
    __asm__ volatile("vmsr fpscr, %0" : : "r"((uint32_t)mode) : "memory");
}

#else /* RISC-V and WebAssembly know no other way than to keep them */

enum { NNEFC_FLUSHES = 0 };
static inline uint64_t nnefc_float_mode(void) { return 0; }
static inline void nnefc_set_float_mode(uint64_t mode) { (void)mode; }

#endif

/* Keeps subnormal numbers from now on, or takes them for zero; the rest of the thread's mode stays. */
static inline void nnefc_keep_subnormals(bool keep) {
    uint64_t mode = nnefc_float_mode();
    nnefc_set_float_mode(keep ? mode & ~(uint64_t)NNEFC_FLUSHES : mode | NNEFC_FLUSHES);
}

#endif

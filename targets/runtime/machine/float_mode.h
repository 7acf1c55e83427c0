/* How the processor computes with reals: how it rounds, what it reports, and how it treats subnormal numbers, those nearest to
 * zero, for which many processors need a hundred times as long. A mode belongs to a thread. */
#ifndef NNEFC_FLOAT_MODE_H
#define NNEFC_FLOAT_MODE_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__) || defined(__i386__)

/* Of MXCSR: to the nearest, nothing is reported; results that are subnormal become zero, operands count as zero. */
enum { NNEFC_USUAL = 0x1F80, NNEFC_FLUSHES = 0x8040 };
static inline uint64_t nnefc_float_mode(void) { return __builtin_ia32_stmxcsr(); }
static inline void nnefc_set_float_mode(uint64_t mode) { __builtin_ia32_ldmxcsr((uint32_t)mode); }

#elif defined(__aarch64__)

enum { NNEFC_USUAL = 0, NNEFC_FLUSHES = 1 << 24 }; /* FPCR.FZ: both; half precision has a bit of its own */
static inline uint64_t nnefc_float_mode(void) {
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
static inline void nnefc_set_float_mode(uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }

#elif defined(__arm__) && defined(__ARM_FP)

enum { NNEFC_USUAL = 0, NNEFC_FLUSHES = 1 << 24 }; /* FPSCR.FZ, of scalars; vectors are always flushed */
static inline uint64_t nnefc_float_mode(void) {
    uint32_t mode;
    __asm__ volatile("vmrs %0, fpscr" : "=r"(mode));
    return mode;
}
static inline void nnefc_set_float_mode(uint64_t mode) {
    __asm__ volatile("vmsr fpscr, %0" : : "r"((uint32_t)mode) : "memory");
}

#elif defined(__riscv_flen)

enum { NNEFC_USUAL = 0, NNEFC_FLUSHES = 0 }; /* it knows no other way than to keep them */
static inline uint64_t nnefc_float_mode(void) {
    unsigned long mode;
    __asm__ volatile("frcsr %0" : "=r"(mode));
    return mode;
}
static inline void nnefc_set_float_mode(uint64_t mode) { __asm__ volatile("fscsr %0" : : "r"((unsigned long)mode) : "memory"); }

#else /* nor does WebAssembly, which has one mode */

enum { NNEFC_USUAL = 0, NNEFC_FLUSHES = 0 };
static inline uint64_t nnefc_float_mode(void) { return 0; }
static inline void nnefc_set_float_mode(uint64_t mode) { (void)mode; }

#endif

/* The mode that networks are computed in, for every caller: as programs begin with, but for subnormal numbers, which are kept or
 * taken for zero. */
static inline void nnefc_set_own_float_mode(bool keeps_subnormals) {
    nnefc_set_float_mode(keeps_subnormals ? NNEFC_USUAL : NNEFC_USUAL | NNEFC_FLUSHES);
}

#endif

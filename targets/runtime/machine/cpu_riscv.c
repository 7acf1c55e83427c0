/* Features of RISC-V processors, as Linux reports them. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* syscall */
#endif
#include "machine/cpu.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__riscv)
#include <sys/auxv.h>
#include <unistd.h>

/* The system call riscv_hwprobe, of Linux 6.4, and what it says of the extensions beyond the general ones. */
enum { HWPROBE = 258, HWPROBE_EXTENSIONS = 4 };

static const struct {
    const char *name;
    unsigned bit;
} probed[] = {
    {"zba", 3},   {"zbb", 4},      {"zbs", 5},  {"zvbb", 17},   {"zfh", 27},
    {"zfhmin", 28}, {"zvfh", 30}, {"zvfhmin", 31}, {"zfa", 32}, {"zicond", 35},
};

static uint64_t probe(void) {
    struct {
        int64_t key;
        uint64_t value;
    } pair = {HWPROBE_EXTENSIONS, 0};
    return syscall(HWPROBE, &pair, 1, 0, NULL, 0) == 0 && pair.key == HWPROBE_EXTENSIONS ? pair.value : 0;
}

/* Whether there are vectors of version 1.0: those of 0.7.1, for which some systems set the same bit, refuse a type of vectors whose
 * tail and masked elements are agnostic. The instructions are `vsetvli t0, zero, e8, m1, ta, ma` and `csrr %0, vtype`, in numbers
 * for assemblers without the option for vectors; the type's sign says that it was refused. */
static bool has_vectors(void) {
    if (!(getauxval(AT_HWCAP) >> ('v' - 'a') & 1)) return false;
    long type;
    __asm__ volatile(".4byte 0x0c0072d7\n\tcsrr %0, 0xc21" : "=r"(type) : : "t0");
    return type >= 0;
}

/* Length of a vector register in bits. The instruction is `csrr %0, vlenb`. */
static unsigned long vector_bits(void) {
    unsigned long bytes;
    __asm__ volatile("csrr %0, 0xc22" : "=r"(bytes));
    return bytes * 8;
}

bool nnefc_cpu_has(const char *feature) {
    if (strcmp(feature, "v") == 0) return has_vectors();
    if (strncmp(feature, "zvl", 3) == 0) return has_vectors() && vector_bits() >= strtoul(feature + 3, NULL, 10);
    for (size_t i = 0; i < sizeof probed / sizeof *probed; i++)
        if (strcmp(feature, probed[i].name) == 0) return probe() >> probed[i].bit & 1;
    return false;
}

#endif

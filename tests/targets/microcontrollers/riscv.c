/* A program of Linux's without a C library, for the emulator of RISC-V's user mode. */
#include <stddef.h>
#include <stdint.h>

#include "board.h"

int main(void);

void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) ((volatile char *)to)[i] = ((const char *)from)[i];
    return to;
}

void *memset(void *to, int value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) ((volatile char *)to)[i] = (char)value;
    return to;
}

static long call(long number, long a, long b, long c) {
    register long a0 __asm__("a0") = a, a1 __asm__("a1") = b, a2 __asm__("a2") = c, a7 __asm__("a7") = number;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a7) : "memory");
    return a0;
}

void board_write(const void *data, uint32_t bytes) { call(64, 1, (long)data, (long)bytes); }

_Noreturn void board_exit(int status) {
    for (;;) call(93, status, 0, 0);
}

void board_start(void) { board_exit(main()); }

/* What a program needs before main on an Arm Cortex-M, and a way to talk to the debugger: semihosting, which QEMU has too. */
#include <stddef.h>
#include <stdint.h>

#include "board.h"

extern uint32_t board_stack_top[], board_data_image[], board_data[], board_data_end[], board_bss[], board_bss_end[];

int main(void);

void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
    uint8_t *out = to;
    const uint8_t *in = from;
    for (size_t i = 0; i < bytes; i++) out[i] = in[i];
    return to;
}

void *memset(void *to, int value, size_t bytes) {
    uint8_t *out = to;
    for (size_t i = 0; i < bytes; i++) out[i] = (uint8_t)value;
    return to;
}

static int ask_debugger(int operation, void *argument) {
    register int r0 __asm__("r0") = operation;
    register void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void board_write(const void *data, uint32_t bytes) {
    static int console = -1;
    if (console < 0) {
        uintptr_t opened[] = {(uintptr_t)":tt", 4, 3}; /* the console, for writing, and the length of its name */
        console = ask_debugger(0x01, opened);
    }
    uintptr_t written[] = {(uintptr_t)console, (uintptr_t)data, bytes};
    ask_debugger(0x05, written);
}

_Noreturn void board_exit(int status) {
    uintptr_t reason[] = {0x20026, (uintptr_t)status}; /* the application's own wish */
    ask_debugger(0x20, reason);
    for (;;) {
    }
}

void board_start(void) {
    *(volatile uint32_t *)0xE000ED88 |= 0xFU << 20; /* CPACR: the floating-point unit, and Helium's vectors */
    __asm__ volatile("dsb\nisb" ::: "memory");
    for (uint32_t *to = board_data, *from = board_data_image; to < board_data_end;) *to++ = *from++;
    for (uint32_t *to = board_bss; to < board_bss_end;) *to++ = 0;
    board_exit(main());
}

static void fault(void) { board_exit(99); }

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    board_stack_top, (const void *)board_start, (const void *)fault, (const void *)fault, (const void *)fault,
    (const void *)fault, (const void *)fault,
};

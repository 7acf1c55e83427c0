/* What a run costs on an Arm board: ticks of the processor's timer, and bytes of the stack. */
#include <stdint.h>

#ifdef __arm__
#define SYSTICK ((volatile uint32_t *)0xE000E010)
extern uint32_t board_bss_end[];

static inline void start_counting(void) {
    SYSTICK[1] = 0xFFFFFF;
    SYSTICK[2] = 0;
    SYSTICK[0] = 5;
}

static inline uint32_t stop_counting(void) { return 0xFFFFFF - SYSTICK[2]; }

static inline uint32_t *stack_here(void) {
    uint32_t *here;
    __asm__ volatile("mov %0, sp" : "=r"(here));
    return here;
}

#ifndef PAINTED
#define PAINTED 16384 /* bytes of the stack that may be used */
#endif

__attribute__((noinline)) static void paint_stack(void) {
    for (volatile uint32_t *word = stack_here() - 4, *end = word - PAINTED / 4; word > end; word--) *word = 0xA5A5A5A5;
}

__attribute__((noinline)) static uint32_t used_stack(void) {
    uint32_t *here = stack_here(), *end = here - PAINTED / 4 + 64;
    while (end < here && *end == 0xA5A5A5A5) end++;
    return (uint32_t)((char *)here - (char *)end);
}
#else
static inline void start_counting(void) {}
static inline uint32_t stop_counting(void) { return 0; }
static inline void paint_stack(void) {}
static inline uint32_t used_stack(void) { return 0; }
#endif

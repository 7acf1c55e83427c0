/* Runs a network that emx-onnx-cgen has written, twice, and says what the second run took. */
#include "board.h"
#include "counting.h"

extern uint32_t heap_peak, heap_is_full;
extern const float input[];
static float output[4096];

#ifdef EMPTY
static void model(const float *in, float *out) { *out = *in; }
const float input[1];
uint32_t heap_peak, heap_is_full;
#else
void model(const float *in, float *out);
__asm__(".section .rodata\n.balign 64\n.globl input\ninput: .incbin \"input.bin\"\n.previous");
#endif

int main(void) {
    uint32_t counts[3];
    paint_stack();
    model(input, output);
    counts[1] = used_stack();
    start_counting();
    model(input, output);
    counts[0] = stop_counting();
    counts[2] = heap_peak;
    board_write(counts, sizeof counts);
    board_write(output, OUTPUT_BYTES);
    return heap_is_full ? 2 : 0;
}

/* A heap that knows how much of it was used. Blocks follow each other; the memory of the last ones is used again. */
#include <stdint.h>
#include <stdlib.h>

typedef struct Block {
    struct Block *before;
    uint32_t bytes, is_free;
} Block;

enum { HEAP_BYTES = 3840 << 10, ALIGNMENT = 16 };

uint32_t heap_peak, heap_is_full;
static uint8_t heap[HEAP_BYTES] __attribute__((aligned(16)));
static uint32_t used, live;
static Block *last;

void *malloc(size_t bytes) {
    uint32_t size = ((uint32_t)bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (used + ALIGNMENT + size > HEAP_BYTES) {
        heap_is_full = 1;
        return 0;
    }
    Block *block = (Block *)(heap + used);
    *block = (Block){last, size, 0};
    last = block;
    used += ALIGNMENT + size;
    live += size;
    if (live > heap_peak) heap_peak = live;
    return heap + used - size;
}

void free(void *memory) {
    if (!memory) return;
    Block *block = (Block *)((uint8_t *)memory - ALIGNMENT);
    block->is_free = 1;
    live -= block->bytes;
    for (; last && last->is_free; last = last->before) used = (uint32_t)((uint8_t *)last - heap);
}

float nearbyintf(float x) {
    const float large = 12582912.0f;
    return x > -4194304.0f && x < 4194304.0f ? (x + large) - large : x;
}

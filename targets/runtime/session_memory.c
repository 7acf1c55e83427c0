#include "session_memory.h"

#include <string.h>

#include "machine/system.h"

/* Returns a size as a multiple of the alignment, not 0. */
static uint64_t whole_blocks(uint64_t bytes) {
    return bytes == 0 ? NNEFC_ALIGNMENT : (bytes + NNEFC_ALIGNMENT - 1) / NNEFC_ALIGNMENT * NNEFC_ALIGNMENT;
}

/* Asks the program's allocator; memory that is not aligned is none. */
static void *ask_program(const nnefc_memory *memory, size_t bytes) {
    void *block = memory->allocate(memory->context, bytes, NNEFC_ALIGNMENT);
    if ((uintptr_t)block % NNEFC_ALIGNMENT == 0) return block;
    memory->release(memory->context, block, bytes, NNEFC_ALIGNMENT);
    return NULL;
}

void *nnefc_memory_take(const nnefc_memory *memory, uint64_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t whole = (size_t)whole_blocks(bytes);
    return memory->allocate == NULL ? nnefc_allocate_aligned(whole) : ask_program(memory, whole);
}

void *nnefc_memory_take_zeros(const nnefc_memory *memory, uint64_t bytes) {
    void *block = nnefc_memory_take(memory, bytes);
    if (block != NULL) memset(block, 0, (size_t)whole_blocks(bytes));
    return block;
}

void nnefc_memory_give_back(const nnefc_memory *memory, void *block, uint64_t bytes) {
    if (block == NULL) return;
    if (memory->allocate == NULL)
        nnefc_free_aligned(block);
    else
        memory->release(memory->context, block, (size_t)whole_blocks(bytes), NNEFC_ALIGNMENT);
}

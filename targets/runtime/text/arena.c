#include "text/arena.h"

#include "messages.h"
#include "threads/per_thread.h"
#include "text/text.h"

enum { FIRST_BLOCK = 1 << 14 };

struct nnefc_text_block {
    nnefc_text_block *older;
    uint64_t bytes, used;
    uint64_t memory[];
};

NNEFC_PER_THREAD(arena_of_thread)

bool nnefc_text_arena_use(nnefc_text_arena *arena, nnefc_text_arena **outside) {
    *outside = nnefc_per_thread_get(&arena_of_thread);
    return nnefc_per_thread_set(&arena_of_thread, arena);
}

void nnefc_text_arena_leave(nnefc_text_arena *outside) { nnefc_per_thread_set(&arena_of_thread, outside); }

/* Adds a block of so many bytes; false if there is no memory. */
static bool add(nnefc_text_arena *arena, uint64_t bytes) {
    if (bytes > SIZE_MAX / 2) return false;
    nnefc_text_block *block = nnefc_memory_take(arena->memory, sizeof *block + bytes);
    if (block == NULL) return false;
    *block = (nnefc_text_block){arena->newest, bytes, 0};
    arena->newest = block;
    arena->bytes += bytes;
    return true;
}

void nnefc_text_arena_free(nnefc_text_arena *arena) {
    for (nnefc_text_block *older; arena->newest != NULL; arena->newest = older) {
        older = arena->newest->older;
        nnefc_memory_give_back(arena->memory, arena->newest, sizeof *arena->newest + arena->newest->bytes);
    }
    arena->bytes = 0;
}

void nnefc_text_arena_reset(nnefc_text_arena *arena) {
    if (arena->newest == NULL) return;
    if (arena->newest->older != NULL) {
        uint64_t bytes = arena->bytes;
        nnefc_text_arena_free(arena);
        add(arena, bytes); /* if this fails, the run asks again, for what it needs */
    }
    if (arena->newest != NULL) arena->newest->used = 0;
}

/* Twice as much as there is, if it may be so much, and at least as much as is needed. */
static bool grow(nnefc_text_arena *arena, uint64_t bytes) {
    uint64_t left = arena->maximum - arena->bytes;
    if (bytes > left) return false;
    uint64_t wanted = arena->bytes > FIRST_BLOCK ? arena->bytes : FIRST_BLOCK;
    if (wanted < bytes) wanted = bytes;
    if (wanted > left) wanted = left;
    return add(arena, wanted) || add(arena, bytes);
}

void *nnefc_text_allocate(uint64_t bytes) {
    nnefc_text_arena *current = nnefc_per_thread_get(&arena_of_thread);
    if (current == NULL) return nnefc_kernel_error("a text was made outside of a run"), NULL;
    if (bytes <= current->maximum) {
        bytes = (bytes + 7) / 8 * 8;
        nnefc_text_block *block = current->newest;
        if (block != NULL && block->bytes - block->used >= bytes) {
            void *found = (uint8_t *)block->memory + block->used;
            block->used += bytes;
            return found;
        }
        if (grow(current, bytes)) {
            current->newest->used = bytes;
            return current->newest->memory;
        }
    }
    char message[128];
    nnefc_snprintf(message, sizeof message, "there is no memory for the texts of the run, or they take more than %llu bytes",
             (unsigned long long)current->maximum);
    return nnefc_kernel_error(message), NULL;
}

nnefc_sized_text *nnefc_text_new(uint64_t size) {
    nnefc_sized_text *made = size <= UINT64_MAX / 2 ? nnefc_text_allocate(sizeof *made + size) : nnefc_text_allocate(size);
    if (made != NULL) made->size = size;
    return made;
}

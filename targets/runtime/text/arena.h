/* Memory of the texts that a run makes: it is all free again when the next run begins, and stays with the session. */
#ifndef NNEFC_TEXT_ARENA_H
#define NNEFC_TEXT_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "session_memory.h"

typedef struct nnefc_text_block nnefc_text_block;

typedef struct nnefc_text_arena {
    nnefc_text_block *newest;
    uint64_t bytes; /* of all blocks */
    uint64_t maximum;  /* that there may be */
    const nnefc_memory *memory; /* where the blocks are from */
} nnefc_text_arena;

/* Makes all memory free again. Several blocks become one, so that a session soon allocates no more. */
void nnefc_text_arena_reset(nnefc_text_arena *arena);

void nnefc_text_arena_free(nnefc_text_arena *arena);

/* What nnefc_text_allocate takes memory from on the calling thread, until nnefc_text_arena_leave is given what it was `outside`;
 * null for nothing. False if there is no memory to note that. */
bool nnefc_text_arena_use(nnefc_text_arena *arena, nnefc_text_arena **outside);

void nnefc_text_arena_leave(nnefc_text_arena *outside);

#endif

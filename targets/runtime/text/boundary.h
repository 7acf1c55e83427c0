/* Inputs and outputs of strings: nnefc_string outside, handles inside. */
#ifndef NNEFC_TEXT_BORDER_H
#define NNEFC_TEXT_BORDER_H

#include <stdbool.h>

#include "engine.h"
#include "text/arena.h"

typedef struct nnefc_texts {
    nnefc_text_arena arena;
    nnefc_text_arena *outside; /* of a run that the thread of this run is in besides, for it waits there; null for none */
    const void **inputs; /* passed to the network's code instead of the caller's tensors */
    void **outputs;
} nnefc_texts;

/* Makes room; false if there is no memory. What has been made is for nnefc_texts_free. */
bool nnefc_texts_init(nnefc_texts *texts, const nnefc_memory *memory);

void nnefc_texts_free(nnefc_texts *texts);

/* Begins a run: what the last one has made is gone. `texts->inputs` and `texts->outputs` are for the network's code.
 * `bytes` are those of all inputs, then of all outputs; null where the description has them. Answers NNEFC_BAD_ARGUMENT for
 * an element that is none. */
nnefc_status nnefc_texts_begin(nnefc_texts *texts, const void *const *inputs, void *const *outputs, const uint64_t *bytes,
                               char *error);

/* What the network's code writes an output to whose size, so many bytes outside, is known now, in the middle of a run: the
 * caller's memory, but for strings. Null if there is no memory. */
void *nnefc_texts_reserve(nnefc_texts *texts, uint32_t output, void *given, uint64_t bytes);

/* Ends a run of which nothing comes out. */
void nnefc_texts_abandon(nnefc_texts *texts);

/* Ends it. `shapes` are those of all outputs, one after the other; null where the description has them. The outputs become
 * what the network has made, or empty if it has failed; those that have no memory yet stay without. */
void nnefc_texts_end(nnefc_texts *texts, void *const *outputs, const int64_t *shapes, bool failed);

#endif

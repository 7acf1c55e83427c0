/* The steps that text takes before its tokens are chosen: normalization, added tokens, and the split into words. */
#ifndef NNEFC_TOKENIZER_STEPS_H
#define NNEFC_TOKENIZER_STEPS_H

#include "tokenizer/pieces.h"
#include "tokenizer/vocabulary.h"

/* Takes all steps of a vocabulary. Control tokens are taken out of the text if `finds_control`, else their text is text like
 * any other. Memory that is refused is noted in `pieces`. */
void nnefc_split_text(const nnefc_vocabulary *vocabulary, const char *text, size_t size, bool finds_control, nnefc_pieces *pieces);

/* A step that changes characters: to the end of `made` is written what becomes of a piece. */
void nnefc_map_characters(const nnefc_vocabulary *vocabulary, const nnefc_text_step *step, nnefc_vocabulary_text piece, nnefc_pieces *made);
void nnefc_reorder_marks(const nnefc_vocabulary *vocabulary, const nnefc_text_step *step, nnefc_vocabulary_text piece, nnefc_pieces *made);
void nnefc_compose_characters(const nnefc_vocabulary *vocabulary, const nnefc_text_step *step, nnefc_vocabulary_text piece, nnefc_pieces *made);

#endif

/* The memory of a text that is rendered, its limits, and its first failure. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/values.h"

enum { BLOCK_BYTES = 1 << 16, STEP_BYTES = 32, MAX_DEPTH = 200, MAX_NAME = 100 };

nnefc_value nnefc_chat_fail(nnefc_renderer *renderer, const char *format, ...) {
    if (renderer->status != NNEFC_OK) return nnefc_undefined();
    renderer->status = NNEFC_TEMPLATE_ERROR;
    va_list values;
    va_start(values, format);
    vsnprintf(renderer->message, sizeof renderer->message, format, values);
    va_end(values);
    return nnefc_undefined();
}

nnefc_value nnefc_chat_fail_undefined(nnefc_renderer *renderer, nnefc_value value) {
    if (value.bytes == NULL) return nnefc_chat_fail(renderer, "a value is undefined");
    return nnefc_chat_fail(renderer, "'%.*s' is undefined", (int)(value.size < MAX_NAME ? value.size : MAX_NAME), value.bytes);
}

bool nnefc_chat_enter(nnefc_renderer *renderer) {
    if (++renderer->depth > MAX_DEPTH) nnefc_chat_fail(renderer, "values are nested more than %d deep", MAX_DEPTH);
    return nnefc_chat_spend(renderer, 0);
}

void nnefc_chat_leave(nnefc_renderer *renderer) { renderer->depth--; }

bool nnefc_chat_spend(nnefc_renderer *renderer, size_t bytes) {
    renderer->steps_left -= 1 + (int64_t)(bytes / STEP_BYTES);
    if (renderer->steps_left < 0) nnefc_chat_fail(renderer, "the chat template takes too many steps");
    return renderer->status == NNEFC_OK;
}

/* Memory of malloc's, within the limit. */
static void *taken(nnefc_renderer *renderer, void *old, size_t old_size, size_t size) {
    if (renderer->status != NNEFC_OK) return NULL;
    if (size - old_size > renderer->bytes_left) {
        nnefc_chat_fail(renderer, "the chat template takes too much memory");
        return NULL;
    }
    void *moved = realloc(old, size);
    if (moved == NULL) {
        nnefc_chat_fail(renderer, "there is no memory for the chat template");
        renderer->status = NNEFC_OUT_OF_MEMORY;
        return NULL;
    }
    renderer->bytes_left -= size - old_size;
    return moved;
}

/* Makes room for `bytes` in the first of some blocks. */
static bool has_room(nnefc_renderer *renderer, nnefc_block **blocks, size_t bytes) {
    if (renderer->status != NNEFC_OK) return false;
    if (*blocks != NULL && (*blocks)->size - (*blocks)->used >= bytes) return true;
    size_t size = *blocks == NULL ? BLOCK_BYTES / 4 : BLOCK_BYTES;
    if (bytes > size / 2) size = bytes + bytes / 2;
    nnefc_block *made = taken(renderer, NULL, 0, sizeof *made + size);
    if (made == NULL) return false;
    made->before = *blocks, made->used = 0, made->size = size;
    *blocks = made;
    return true;
}

void *nnefc_chat_allocate(nnefc_renderer *renderer, size_t count, size_t size) {
    size_t bytes = (count * size + 15) / 16 * 16; /* counts have 32 bits, and elements are small */
    if (count > SIZE_MAX / 2 / size || !has_room(renderer, &renderer->blocks, bytes)) {
        nnefc_chat_fail(renderer, "the chat template takes too much memory");
        return NULL;
    }
    char *found = renderer->blocks->bytes + renderer->blocks->used;
    renderer->blocks->used += bytes;
    nnefc_chat_spend(renderer, bytes);
    return memset(found, 0, bytes);
}

/* Room for a string. */
static char *text_room(nnefc_renderer *renderer, size_t size) {
    if (size > UINT32_MAX || !nnefc_chat_spend(renderer, size) || !has_room(renderer, &renderer->texts, size)) {
        nnefc_chat_fail(renderer, "the chat template takes too much memory");
        return NULL;
    }
    char *found = renderer->texts->bytes + renderer->texts->used;
    renderer->texts->used += size;
    return found;
}

nnefc_value nnefc_chat_string(nnefc_renderer *renderer, const char *bytes, size_t size) {
    if (size == 0) return nnefc_text_at("", 0);
    char *made = text_room(renderer, size);
    if (made == NULL) return nnefc_undefined();
    memcpy(made, bytes, size);
    return nnefc_text_at(made, size);
}

nnefc_value nnefc_chat_joined(nnefc_renderer *renderer, nnefc_value first, nnefc_value second) {
    if (first.size == 0 || second.size == 0) return first.size == 0 ? second : first;
    nnefc_block *block = renderer->texts;
    if ((uint64_t)first.size + second.size <= UINT32_MAX && block != NULL && first.bytes + first.size == block->bytes + block->used &&
        block->size - block->used >= second.size) {
        if (!nnefc_chat_spend(renderer, second.size)) return nnefc_undefined();
        memcpy(block->bytes + block->used, second.bytes, second.size);
        block->used += second.size;
        return nnefc_text_at(first.bytes, (size_t)first.size + second.size);
    }
    char *made = text_room(renderer, (size_t)first.size + second.size);
    if (made == NULL) return nnefc_undefined();
    memcpy(made, first.bytes, first.size);
    memcpy(made + first.size, second.bytes, second.size);
    return nnefc_text_at(made, (size_t)first.size + second.size);
}

void nnefc_chat_write(nnefc_renderer *renderer, const char *bytes, size_t size) {
    if (size == 0 || !nnefc_chat_spend(renderer, size)) return;
    if (size > renderer->room - renderer->size) {
        size_t room = renderer->size + size + (renderer->size + size) / 2 + 256;
        char *moved = taken(renderer, renderer->output, renderer->room, room);
        if (moved == NULL) return;
        renderer->output = moved, renderer->room = room;
    }
    memcpy(renderer->output + renderer->size, bytes, size);
    renderer->size += size;
}

nnefc_value nnefc_chat_taken(nnefc_renderer *renderer, size_t begin) {
    if (renderer->status != NNEFC_OK) return nnefc_undefined();
    size_t size = renderer->size - begin;
    renderer->size = begin;
    return nnefc_chat_string(renderer, size > 0 ? renderer->output + begin : "", size);
}

static void free_blocks(nnefc_block *block) {
    while (block != NULL) {
        nnefc_block *before = block->before;
        free(block);
        block = before;
    }
}

void nnefc_chat_free(nnefc_renderer *renderer) {
    free_blocks(renderer->blocks);
    free_blocks(renderer->texts);
    free(renderer->output);
    free(renderer->stack);
}

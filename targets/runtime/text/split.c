/* Splits strings, as Python's str.split does. The parts are slices of the string's bytes. */
#include <string.h>

#include "text/text.h"
#include "text/utf8.h"

/* What is still to be cut; `left` cuts may still be made. */
typedef struct tail {
    const char *data, *end, *delimiter;
    size_t delimiter_size; /* 0 for white space */
    int64_t left;
    bool done;
} tail;

static bool is_space(uint32_t c) {
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* The bytes from `data` on that are white space, or that are none. */
static size_t run_of(const char *data, const char *end, bool spaces) {
    const char *at = data;
    while (at < end) {
        nnefc_code_point next = nnefc_next_code_point(at, (size_t)(end - at));
        if (is_space(next.number) != spaces) break;
        at += next.size;
    }
    return (size_t)(at - data);
}

static const char *find(const tail *text) {
    size_t size = text->delimiter_size;
    for (const char *at = text->data; (size_t)(text->end - at) >= size; at++) {
        at = memchr(at, text->delimiter[0], (size_t)(text->end - at) - size + 1);
        if (at == NULL || memcmp(at, text->delimiter, size) == 0) return at;
    }
    return NULL;
}

/* Takes the next piece; false if there is none. */
static bool next_piece(tail *text, nnefc_string *piece) {
    if (text->delimiter_size == 0) {
        text->data += run_of(text->data, text->end, true);
        if (text->data == text->end) return false;
        size_t all = (size_t)(text->end - text->data);
        *piece = (nnefc_string){text->data, text->left-- == 0 ? all : run_of(text->data, text->end, false)};
        text->data += piece->size;
        return true;
    }
    if (text->done) return false;
    const char *cut = text->left-- != 0 && text->data != text->end ? find(text) : NULL;
    text->done = cut == NULL;
    *piece = (nnefc_string){text->data, (size_t)((cut == NULL ? text->end : cut) - text->data)};
    if (cut != NULL) text->data = cut + text->delimiter_size;
    return true;
}

static tail tail_of(nnefc_text text, nnefc_string delimiter, int64_t cuts) {
    nnefc_string bytes = nnefc_text_bytes(text);
    const char *data = bytes.data != NULL ? bytes.data : "";
    return (tail){data, data + bytes.size, delimiter.data, delimiter.size, cuts, false};
}

/* How many pieces each text has, and the maximum of them all. Of each at most `cuts` pieces are cut off, if that is not
 * negative. */
int32_t nnefc_text_count_pieces(const nnefc_text *texts, const nnefc_sized_text *delimiter, int64_t *counts, int64_t *maximum,
                                int64_t count, int64_t cuts);

int32_t nnefc_text_count_pieces(const nnefc_text *texts, const nnefc_sized_text *delimiter, int64_t *counts, int64_t *maximum,
                                int64_t count, int64_t cuts) {
    nnefc_string at = {delimiter->data, (size_t)delimiter->size}, piece;
    *maximum = 0;
    bool failed = nnefc_run_failed();
    for (int64_t i = 0; i < count; i++) {
        counts[i] = 0;
        if (failed) continue;
        tail text = tail_of(texts[i], at, cuts);
        while (next_piece(&text, &piece)) counts[i]++;
        if (counts[i] > *maximum) *maximum = counts[i];
    }
    return 0;
}

/* The pieces of each text, `[count, width]`, empty ones behind the last. */
int32_t nnefc_text_split(const nnefc_text *texts, const nnefc_sized_text *delimiter, nnefc_text *pieces, int64_t count,
                         int64_t cuts, int64_t width);

int32_t nnefc_text_split(const nnefc_text *texts, const nnefc_sized_text *delimiter, nnefc_text *pieces, int64_t count,
                         int64_t cuts, int64_t width) {
    nnefc_string at = {delimiter->data, (size_t)delimiter->size}, piece;
    memset(pieces, 0, (size_t)(count * width) * sizeof *pieces);
    if (nnefc_run_failed()) return 0;
    for (int64_t i = 0; i < count; i++) {
        tail text = tail_of(texts[i], at, cuts);
        for (int64_t j = 0; j < width && next_piece(&text, &piece); j++) {
            nnefc_string *made = piece.size > 0 ? nnefc_text_allocate(sizeof *made) : NULL;
            if (piece.size > 0 && made == NULL) return 0;
            if (made == NULL) continue;
            *made = piece;
            pieces[i * width + j] = nnefc_text_of_string(made);
        }
    }
    return 0;
}

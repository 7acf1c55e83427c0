/* Changes characters as Unicode normalization does: https://www.unicode.org/reports/tr15/. */
#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"
#include "tokenizer/steps.h"

#define RAW_BYTE UINT32_C(0x80000000) /* a byte that is in no code point */

enum { HANGUL = 0xAC00, LEADING = 0x1100, VOWEL = 0x1161, TRAILING = 0x11A7, LEADINGS = 19, VOWELS = 21, TRAILINGS = 28 };

typedef nnefc_vocabulary_text text_part;

/* Successive code points that have something in common. */
typedef struct range {
    uint32_t first, last, value;
} range;

typedef struct ranges {
    uint32_t count;
    range list[];
} ranges;

static const range *range_of(const ranges *table, uint32_t number) {
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table->list[middle].last < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < table->count && table->list[low].first <= number ? &table->list[low] : NULL;
}

static bool is_ascii(text_part text) {
    for (size_t i = 0; i < text.size; i++)
        if ((uint8_t)text.bytes[i] >= 0x80) return false;
    return true;
}

static void write_code_point(nnefc_pieces *made, uint32_t c) {
    char bytes[4];
    size_t size = 0;
    if (c & RAW_BYTE || c < 0x80) {
        bytes[size++] = (char)c;
    } else {
        uint32_t more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        static const uint8_t marks[] = {0, 0xC0, 0xE0, 0xF0};
        bytes[size++] = (char)(marks[more] | c >> 6 * more);
        while (more-- > 0) bytes[size++] = (char)(0x80 | (c >> 6 * more & 0x3F));
    }
    nnefc_pieces_write(made, bytes, size);
}

static void decompose_hangul(nnefc_pieces *made, uint32_t c) {
    uint32_t index = c - HANGUL;
    write_code_point(made, LEADING + index / (VOWELS * TRAILINGS));
    write_code_point(made, VOWEL + index / TRAILINGS % VOWELS);
    if (index % TRAILINGS != 0) write_code_point(made, TRAILING + index % TRAILINGS);
}

void nnefc_map_characters(const nnefc_vocabulary *vocabulary, const nnefc_text_step *step, text_part piece, nnefc_pieces *made) {
    const ranges *table = nnefc_at(vocabulary, step->table);
    bool has_hangul = (step->flags & NNEFC_MAP_HANGUL) != 0;
    if (table->count == 0 || (table->list[0].first >= 0x80 && is_ascii(piece))) {
        nnefc_pieces_write(made, piece.bytes, piece.size);
        return;
    }
    for (size_t at = 0; at < piece.size && !made->failed;) {
        nnefc_code_point next = nnefc_next_code_point(piece.bytes + at, piece.size - at);
        const range *own = range_of(table, next.number);
        if (has_hangul && next.number >= HANGUL && next.number < HANGUL + LEADINGS * VOWELS * TRAILINGS) {
            decompose_hangul(made, next.number);
        } else if (own == NULL) {
            nnefc_pieces_write(made, piece.bytes + at, next.size);
        } else if (own->value != 0) {
            text_part other = nnefc_text_at(vocabulary, own->value);
            nnefc_pieces_write(made, other.bytes, other.size);
        }
        at += next.size;
    }
}

/* The code points of a text, one after the other; null if there is no memory. */
static uint32_t *decoded(text_part text, size_t *count, nnefc_pieces *made) {
    uint32_t *list = malloc((text.size > 0 ? text.size : 1) * sizeof *list);
    *count = 0;
    made->failed = made->failed || list == NULL;
    for (size_t at = 0; list != NULL && at < text.size;) {
        nnefc_code_point next = nnefc_next_code_point(text.bytes + at, text.size - at);
        list[(*count)++] = next.number == NNEFC_NO_CODE_POINT ? RAW_BYTE | (uint8_t)text.bytes[at] : next.number;
        at += next.size;
    }
    return list;
}

static uint32_t class_of(const ranges *classes, uint32_t number) {
    const range *own = range_of(classes, number);
    return own != NULL ? own->value : 0;
}

/* A mark and what it is sorted by. */
typedef struct mark {
    uint32_t number, class, position;
} mark;

static int by_class(const void *first, const void *second) {
    const mark *a = first, *b = second;
    if (a->class != b->class) return a->class < b->class ? -1 : 1;
    return a->position < b->position ? -1 : a->position > b->position;
}

/* Sorts `count` marks by their class; those of one class stay in order. */
static void sort_marks(const ranges *classes, uint32_t *list, size_t count, nnefc_pieces *made) {
    mark *marks = malloc(count * sizeof *marks);
    made->failed = made->failed || marks == NULL;
    if (marks == NULL) return;
    for (size_t i = 0; i < count; i++) marks[i] = (mark){list[i], class_of(classes, list[i]), (uint32_t)i};
    qsort(marks, count, sizeof *marks, by_class);
    for (size_t i = 0; i < count; i++) list[i] = marks[i].number;
    free(marks);
}

void nnefc_reorder_marks(const nnefc_vocabulary *vocabulary, const nnefc_text_step *step, text_part piece, nnefc_pieces *made) {
    const ranges *classes = nnefc_at(vocabulary, step->table);
    size_t count = 0;
    uint32_t *list = decoded(piece, &count, made);
    for (size_t i = 0, begin = 0; list != NULL && i <= count; i++) {
        if (i < count && class_of(classes, list[i]) != 0) continue;
        if (i - begin > 1) sort_marks(classes, list + begin, i - begin, made);
        begin = i + 1;
    }
    for (size_t i = 0; list != NULL && i < count; i++) write_code_point(made, list[i]);
    free(list);
}

/* Pairs of code points, sorted, and what they compose. */
typedef struct compositions {
    uint32_t count;
    struct { uint32_t first, second, both; } list[];
} compositions;

/* Hangul's jamo compose by arithmetic; 0 if these do not. */
static uint32_t composed_hangul(uint32_t first, uint32_t second) {
    if (first >= LEADING && first < LEADING + LEADINGS && second >= VOWEL && second < VOWEL + VOWELS)
        return HANGUL + ((first - LEADING) * VOWELS + (second - VOWEL)) * TRAILINGS;
    bool is_open = first >= HANGUL && first < HANGUL + LEADINGS * VOWELS * TRAILINGS && (first - HANGUL) % TRAILINGS == 0;
    return is_open && second > TRAILING && second < TRAILING + TRAILINGS ? first + (second - TRAILING) : 0;
}

static uint32_t composed(const compositions *table, uint32_t first, uint32_t second) {
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        bool is_before = table->list[middle].first != first ? table->list[middle].first < first : table->list[middle].second < second;
        if (is_before)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < table->count && table->list[low].first == first && table->list[low].second == second;
    return found ? table->list[low].both : composed_hangul(first, second);
}

/* Composes what can be composed, and returns how many code points are left. A mark composes with the last starter before it unless
 * a mark of the same or a higher class, or a starter, stands between. */
static size_t compose(const compositions *table, const ranges *classes, uint32_t *list, size_t count) {
    size_t kept = 0, starter = SIZE_MAX;
    uint32_t before = 0; /* the class of the code point that was kept last */
    for (size_t i = 0; i < count; i++) {
        uint32_t class = class_of(classes, list[i]);
        bool is_next = starter != SIZE_MAX && (kept == starter + 1 || (before != 0 && before < class));
        uint32_t both = is_next ? composed(table, list[starter], list[i]) : 0;
        if (both != 0) {
            list[starter] = both;
            continue;
        }
        if (class == 0) starter = kept;
        before = class;
        list[kept++] = list[i];
    }
    return kept;
}

void nnefc_compose_characters(const nnefc_vocabulary *vocabulary, const nnefc_text_step *step, text_part piece, nnefc_pieces *made) {
    if (is_ascii(piece)) {
        nnefc_pieces_write(made, piece.bytes, piece.size);
        return;
    }
    size_t count = 0;
    uint32_t *list = decoded(piece, &count, made);
    if (list != NULL) count = compose(nnefc_at(vocabulary, step->table), nnefc_at(vocabulary, step->text), list, count);
    for (size_t i = 0; list != NULL && i < count; i++) write_code_point(made, list[i]);
    free(list);
}

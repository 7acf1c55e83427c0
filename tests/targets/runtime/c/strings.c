/* The functions for strings on random bytes, with tables from files: lower case, keys, an automaton. To be run under
 * sanitizers. Prints "ok". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/arena.h"
#include "text/text.h"

enum { REPEATS = 3000, COUNT = 7, LONGEST = 40, WIDTH = 64 };

int32_t nnefc_text_concat(const nnefc_text *first, const nnefc_text *second, nnefc_text *made, int64_t count);
int32_t nnefc_text_change_case(const nnefc_text *texts, const void *table, nnefc_text *made, int64_t count);
int64_t nnefc_text_position(nnefc_text text, const void *table, int64_t missing);
int32_t nnefc_text_matches(nnefc_text text, const void *machine);
int32_t nnefc_text_equal(nnefc_text one, nnefc_text other);
int32_t nnefc_text_order(nnefc_text one, nnefc_text other);
int32_t nnefc_text_count_pieces(const nnefc_text *texts, const nnefc_sized_text *delimiter, int64_t *counts, int64_t *maximum,
                                int64_t count, int64_t cuts);
int32_t nnefc_text_split(const nnefc_text *texts, const nnefc_sized_text *delimiter, nnefc_text *pieces, int64_t count,
                         int64_t cuts, int64_t width);
int32_t nnefc_text_count_tokens(const nnefc_text *texts, const uint8_t *machines, const int64_t *offsets, int64_t *maximum,
                                int64_t count, int64_t rule_count, int64_t minimum, int64_t keeps_matches, int64_t marks);
int32_t nnefc_text_tokens(const nnefc_text *texts, const uint8_t *machines, const int64_t *offsets, const nnefc_text *fill,
                          nnefc_text *made, int64_t count, int64_t rule_count, int64_t minimum, int64_t keeps_matches,
                          int64_t marks, int64_t width);
int32_t nnefc_text_to_doubles(const nnefc_text *texts, double *values, int64_t count);
int32_t nnefc_text_to_integers(const nnefc_text *texts, int64_t *values, int64_t count, int64_t minimum, int64_t maximum,
                               int64_t is_unsigned);
int32_t nnefc_text_of_doubles(const double *values, nnefc_text *texts, int64_t count);

static int failures;

int32_t nnefc_run_failed(void) { return failures > 0; }

int32_t nnefc_kernel_error(const char *text) {
    (void)text;
    failures++;
    return -1;
}

static uint32_t random_number(uint32_t below) {
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(state >> 33) % below;
}

static void *file(const char *path) {
    FILE *in = fopen(path, "rb");
    if (in == NULL) exit(2);
    fseek(in, 0, SEEK_END);
    size_t size = (size_t)ftell(in);
    rewind(in);
    void *content = malloc(size);
    if (fread(content, 1, size, in) != size) exit(2);
    fclose(in);
    return content;
}

/* Exactly as many bytes as a string has, so that one behind them is found: of any value, or of a few that mean something. */
static nnefc_string random_string(void) {
    static const char some[] = " \t,ab12.e-\xCE\xA3\xC3\x9F\xE2\x80\x83\xF0\x9D";
    nnefc_string made = {NULL, random_number(LONGEST)};
    char *data = malloc(made.size);
    int any = random_number(3) == 0;
    for (size_t i = 0; i < made.size; i++) data[i] = any ? (char)random_number(256) : some[random_number(sizeof some)];
    made.data = made.size > 0 || random_number(2) ? data : NULL;
    if (made.data == NULL) free(data);
    return made;
}

static void check(int holds, const char *what) {
    if (holds) return;
    printf("%s\n", what);
    exit(1);
}

/* The pieces with the delimiter between them are the text. */
static void check_split(const nnefc_text *texts, int64_t cuts) {
    struct { /* as nnefc_sized_text, which has no members after its bytes */
        uint64_t size;
        char bytes[8];
    } delimiter = {1 + random_number(2), ",a"};
    int64_t counts[COUNT], maximum;
    nnefc_text pieces[COUNT * WIDTH];
    nnefc_text_count_pieces(texts, (const void *)&delimiter, counts, &maximum, COUNT, cuts);
    check(failures == 0 && maximum <= WIDTH, "count");
    nnefc_text_split(texts, (const void *)&delimiter, pieces, COUNT, cuts, maximum);
    for (int64_t i = 0; i < COUNT; i++) {
        nnefc_string whole = nnefc_text_bytes(texts[i]);
        size_t at = 0;
        for (int64_t j = 0; j < counts[i]; j++) {
            nnefc_string piece = nnefc_text_bytes(pieces[i * maximum + j]);
            check(at + piece.size <= whole.size, "pieces are too long");
            check(piece.size == 0 || memcmp(whole.data + at, piece.data, piece.size) == 0, "another piece");
            at += piece.size + (j + 1 < counts[i] ? delimiter.size : 0);
        }
        check(at == whole.size && counts[i] >= 1 && (cuts < 0 || counts[i] <= cuts + 1), "the pieces are not the text");
    }
    delimiter.size = 0;
    nnefc_text_count_pieces(texts, (const void *)&delimiter, counts, &maximum, COUNT, cuts);
    nnefc_text_split(texts, (const void *)&delimiter, pieces, COUNT, cuts, maximum);
}

static void find_tokens(const nnefc_text *texts, const void *machine) {
    static const int64_t offsets[] = {0, 0};
    const nnefc_text fill[] = {0, 0, 0};
    nnefc_text made[COUNT * WIDTH];
    int64_t maximum, keeps = random_number(2), rules = keeps ? 1 : 1 + random_number(2), minimum = 1 + random_number(3);
    int64_t marks = random_number(2);
    nnefc_text_count_tokens(texts, machine, offsets, &maximum, COUNT, rules, minimum, keeps, marks);
    check(failures == 0 && maximum <= WIDTH, "tokens");
    nnefc_text_tokens(texts, machine, offsets, fill, made, COUNT, rules, minimum, keeps, marks, maximum);
    for (int64_t i = 0; i < COUNT * maximum; i++) check(nnefc_text_bytes(made[i]).size <= LONGEST, "a token is too long");
}

static void round_of(const void *lower, const void *keys, const void *machine) {
    nnefc_string strings[COUNT];
    nnefc_text texts[COUNT], made[COUNT], more[COUNT];
    double reals[COUNT];
    int64_t integers[COUNT];
    for (int i = 0; i < COUNT; i++) {
        strings[i] = random_string();
        texts[i] = nnefc_text_of_string(&strings[i]);
    }
    check_split(texts, (int64_t)random_number(4) - 1);
    find_tokens(texts, machine);
    nnefc_text_concat(texts, texts, made, COUNT);
    nnefc_text_change_case(made, lower, more, COUNT);
    for (int i = 0; i < COUNT; i++) {
        check(nnefc_text_bytes(made[i]).size == 2 * strings[i].size, "the sizes of joined texts");
        check(nnefc_text_position(more[i], keys, 99) <= 99, "a position");
        check(nnefc_text_matches(made[i], machine) <= 1, "a match");
        check(nnefc_text_equal(made[i], texts[i]) == (strings[i].size == 0), "equal texts");
        check(nnefc_text_order(made[i], texts[i]) >= 0, "the order of texts");
    }
    nnefc_text_to_doubles(texts, reals, COUNT);
    failures = 0;
    nnefc_text_to_integers(texts, integers, COUNT, INT64_MIN, INT64_MAX, random_number(2));
    failures = 0;
    nnefc_text_of_doubles(reals, made, COUNT);
    nnefc_text_to_doubles(made, reals, COUNT);
    check(failures == 0, "numbers that were written cannot be read");
    for (int i = 0; i < COUNT; i++) free((void *)(uintptr_t)strings[i].data);
}

int main(int count, char **paths) {
    if (count != 4) return 2;
    void *tables[] = {file(paths[1]), file(paths[2]), file(paths[3])};
    nnefc_memory memory = {NULL, NULL, NULL};
    nnefc_text_arena arena = {NULL, 0, 1 << 20, &memory}, inner = {NULL, 0, 1 << 10, &memory}, *outside, *none;
    check(nnefc_text_arena_use(&arena, &none) && none == NULL, "an unused arena");
    nnefc_text_arena_use(&inner, &outside); /* of a run within a run */
    nnefc_text_arena_leave(outside);
    for (int i = 0; i < REPEATS; i++) {
        nnefc_text_arena_reset(&arena);
        round_of(tables[0], tables[1], tables[2]);
    }
    check(nnefc_text_allocate(1 << 21) == NULL && failures == 1, "more memory than there may be");
    check(nnefc_text_new(UINT64_MAX) == NULL && nnefc_text_new(UINT64_MAX / 2) == NULL, "more than any memory");
    nnefc_text_arena_leave(none);
    nnefc_text_arena_free(&arena);
    for (int i = 0; i < 3; i++) free(tables[i]);
    puts("ok");
    return 0;
}

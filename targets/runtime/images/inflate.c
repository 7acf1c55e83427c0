/* Decompression of zlib streams: RFC 1950 and RFC 1951. */
#include <string.h>

#include "images/images.h"

enum { LONGEST = 15, LITERALS = 288, DISTANCES = 30, MAX_CODES = 320 };

/* A Huffman code: how many codes each length has, and the symbols in the order of their codes. */
typedef struct code {
    uint16_t counts[LONGEST + 1];
    uint16_t symbols[LITERALS];
} code;

typedef struct stream {
    nnefc_bytes in;
    size_t at;
    uint32_t bits, held; /* bits that are read and not used yet, the first one lowest */
    uint8_t *out;
    size_t made, room;
    bool broken;
} stream;

static uint32_t take(stream *s, uint32_t count) {
    while (s->held < count) {
        if (s->at >= s->in.size) {
            s->broken = true;
            return 0;
        }
        s->bits |= (uint32_t)s->in.data[s->at++] << s->held;
        s->held += 8;
    }
    uint32_t value = s->bits & ((1u << count) - 1);
    s->bits >>= count;
    s->held -= count;
    return value;
}

/* False if there are more codes of some length than there can be. */
static bool build(code *made, const uint8_t *lengths, int count) {
    uint16_t offsets[LONGEST + 2] = {0};
    memset(made->counts, 0, sizeof made->counts);
    for (int i = 0; i < count; i++) made->counts[lengths[i]]++;
    made->counts[0] = 0;
    int left = 1;
    for (int length = 1; length <= LONGEST; length++) {
        left = 2 * left - made->counts[length];
        if (left < 0) return false;
        offsets[length + 1] = (uint16_t)(offsets[length] + made->counts[length]);
    }
    for (int i = 0; i < count; i++)
        if (lengths[i] != 0) made->symbols[offsets[lengths[i]]++] = (uint16_t)i;
    return true;
}

static int symbol(stream *s, const code *codes) {
    int value = 0, first = 0, position = 0;
    for (int length = 1; length <= LONGEST; length++) {
        value |= (int)take(s, 1);
        int count = codes->counts[length];
        if (s->broken) return -1;
        if (value - count < first) return codes->symbols[position + (value - first)];
        position += count;
        first = (first + count) << 1;
        value <<= 1;
    }
    s->broken = true;
    return -1;
}

static void put(stream *s, uint8_t byte) {
    if (s->made < s->room) s->out[s->made++] = byte;
}

static void copy_stored(stream *s) {
    s->bits = s->held = 0;
    size_t size = nnefc_little16(s->in, s->at), check = nnefc_little16(s->in, s->at + 2);
    s->at += 4;
    if (s->at > s->in.size || (size ^ check) != 0xFFFF || size > s->in.size - s->at) {
        s->broken = true;
        return;
    }
    for (size_t i = 0; i < size; i++) put(s, s->in.data[s->at + i]);
    s->at += size;
}

/* Repeats earlier bytes. */
static void repeat(stream *s, int length_symbol, const code *distances) {
    static const uint16_t lengths[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                       31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint8_t more[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static const uint16_t starts[] = {1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
                                      193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    int position = length_symbol - 257;
    if (position >= (int)(sizeof more)) {
        s->broken = true;
        return;
    }
    size_t length = lengths[position] + take(s, more[position]);
    int from = symbol(s, distances);
    if (from < 0 || from >= DISTANCES) {
        s->broken = true;
        return;
    }
    size_t distance = starts[from] + take(s, from < 2 ? 0 : (uint32_t)from / 2 - 1);
    if (s->broken || distance > s->made) {
        s->broken = true;
        return;
    }
    for (size_t i = 0; i < length && s->made < s->room; i++) put(s, s->out[s->made - distance]);
}

static void expand(stream *s, const code *literals, const code *distances) {
    while (!s->broken && s->made < s->room) {
        int found = symbol(s, literals);
        if (found < 0 || found == 256) return;
        if (found < 256)
            put(s, (uint8_t)found);
        else
            repeat(s, found, distances);
    }
}

static bool read_codes(stream *s, code *literals, code *distances) {
    static const uint8_t order[] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[MAX_CODES] = {0};
    int literal_count = (int)take(s, 5) + 257, distance_count = (int)take(s, 5) + 1, count = (int)take(s, 4) + 4;
    if (s->broken || literal_count > 286 || distance_count > DISTANCES) return false;
    for (int i = 0; i < count; i++) lengths[order[i]] = (uint8_t)take(s, 3);
    if (s->broken || !build(literals, lengths, 19)) return false;
    code of_lengths = *literals;
    memset(lengths, 0, sizeof lengths);
    for (int i = 0; i < literal_count + distance_count;) {
        int found = symbol(s, &of_lengths), times = 1;
        uint8_t length = (uint8_t)found;
        if (found < 0) return false;
        if (found >= 16) {
            if (found == 16 && i == 0) return false;
            length = found == 16 ? lengths[i - 1] : 0;
            times = found == 16 ? 3 + (int)take(s, 2) : found == 17 ? 3 + (int)take(s, 3) : 11 + (int)take(s, 7);
        }
        if (s->broken || i + times > literal_count + distance_count) return false;
        while (times-- > 0) lengths[i++] = length;
    }
    return build(literals, lengths, literal_count) && build(distances, lengths + literal_count, distance_count);
}

static void fixed_codes(code *literals, code *distances) {
    uint8_t lengths[LITERALS];
    for (int i = 0; i < LITERALS; i++) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    build(literals, lengths, LITERALS);
    memset(lengths, 5, DISTANCES);
    build(distances, lengths, DISTANCES);
}

bool nnefc_inflate(nnefc_bytes in, uint8_t *out, size_t room) {
    stream s = {in, 2, 0, 0, out, 0, room, false};
    if (in.size < 2 || (in.data[0] & 15) != 8 || nnefc_big16(in, 0) % 31 != 0 || (in.data[1] & 32) != 0) return false;
    bool is_last = false;
    while (!is_last && !s.broken && s.made < room) {
        code literals, distances;
        is_last = take(&s, 1) != 0;
        switch (take(&s, 2)) {
        case 0: copy_stored(&s); continue;
        case 1: fixed_codes(&literals, &distances); break;
        case 2: s.broken = s.broken || !read_codes(&s, &literals, &distances); break;
        default: s.broken = true;
        }
        if (!s.broken) expand(&s, &literals, &distances);
    }
    return s.made == room;
}

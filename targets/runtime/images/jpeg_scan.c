/* The coefficients of JPEG's scans: ITU-T T.81, annexes F and G. */
#include <string.h>

#include "images/jpeg.h"

typedef struct scan {
    nnefc_jpeg *jpeg;
    uint32_t part_count;
    nnefc_jpeg_part *parts[NNEFC_JPEG_PARTS];
    const nnefc_huffman *first[NNEFC_JPEG_PARTS], *others[NNEFC_JPEG_PARTS];
    int predicted[NNEFC_JPEG_PARTS];
    uint32_t begin, end, high, low; /* which coefficients, and which of their bits */
    uint32_t skipped;               /* blocks that have no more coefficients in this scan */
    size_t at;
    uint32_t bits, held; /* bits that are read and not used yet, the next one highest */
    bool broken;
} scan;

bool nnefc_huffman_read(nnefc_huffman *made, const uint8_t counts[NNEFC_CODE_BITS], nnefc_bytes symbols) {
    int32_t code = 0, position = 0;
    memset(made, 0, sizeof *made);
    memcpy(made->symbols, symbols.data, symbols.size);
    for (int size = 1; size <= NNEFC_CODE_BITS; size++, code <<= 1) {
        int32_t count = counts[size - 1];
        made->shift[size] = position - code;
        made->largest[size] = count > 0 ? code + count - 1 : -1;
        if (code + count > 1 << size) return false;
        for (int32_t i = 0; i < count && size <= 8; i++)
            for (int32_t tail = 0; tail < 1 << (8 - size); tail++) {
                int32_t next = (code + i) << (8 - size) | tail;
                made->fast_size[next] = (uint8_t)size, made->fast_symbol[next] = made->symbols[position + i];
            }
        code += count, position += count;
    }
    made->exists = true;
    return true;
}

/* Holds 16 bits at least, as far as there are some before the next marker; zeros follow these. */
static void fill(scan *s) {
    const nnefc_bytes *file = &s->jpeg->file;
    while (s->held <= 24 && s->at < file->size) {
        uint8_t byte = file->data[s->at];
        if (byte == 0xFF && nnefc_byte_at(*file, s->at + 1) != 0) return; /* a marker */
        s->at += byte == 0xFF ? 2 : 1;
        s->bits |= (uint32_t)byte << (24 - s->held);
        s->held += 8;
    }
}

static void drop(scan *s, uint32_t count) {
    if (count > s->held) {
        s->broken = true;
        s->held = s->bits = 0;
        return;
    }
    s->bits <<= count;
    s->held -= count;
}

static uint32_t take(scan *s, uint32_t count) {
    if (count == 0) return 0;
    fill(s);
    uint32_t value = s->bits >> (32 - count);
    drop(s, count);
    return s->broken ? 0 : value;
}

static uint32_t symbol(scan *s, const nnefc_huffman *codes) {
    fill(s);
    uint32_t next = s->bits >> 24;
    if (codes->fast_size[next] > 0) {
        drop(s, codes->fast_size[next]);
        return codes->fast_symbol[next];
    }
    for (uint32_t size = 9; size <= NNEFC_CODE_BITS; size++) {
        int32_t code = (int32_t)(s->bits >> (32 - size));
        if (code <= codes->largest[size]) {
            int32_t position = code + codes->shift[size];
            drop(s, size);
            if (position >= 0 && position < 256) return codes->symbols[position];
            break;
        }
    }
    s->broken = true;
    return 0;
}

/* A number of so many bits, of which the first one is the sign. */
static int number(scan *s, uint32_t count) {
    int value = (int)take(s, count);
    return count > 0 && value < 1 << (count - 1) ? value - (1 << count) + 1 : value;
}

static void read_first(scan *s, uint32_t part, int16_t *block) {
    uint32_t size = symbol(s, s->first[part]);
    if (size > 15) s->broken = true;
    if (s->broken) return;
    s->predicted[part] = (int16_t)(s->predicted[part] + number(s, size));
    block[0] = (int16_t)((uint32_t)s->predicted[part] << s->low);
}

static void read_others(scan *s, uint32_t part, int16_t *block) {
    if (s->skipped > 0) {
        s->skipped--;
        return;
    }
    for (uint32_t k = s->begin == 0 ? 1 : s->begin; k <= s->end && !s->broken; k++) {
        uint32_t found = symbol(s, s->others[part]), run = found >> 4, size = found & 15;
        if (size > 0) {
            k += run;
            int value = number(s, size);
            if (k > s->end) s->broken = true;
            if (!s->broken) block[nnefc_jpeg_order[k]] = (int16_t)((uint32_t)value << s->low);
        } else if (run == 15)
            k += 15;
        else {
            s->skipped = s->jpeg->is_progressive ? (1u << run) - 1 + take(s, run) : 0;
            return;
        }
    }
}

/* One more bit of a coefficient that is not zero. */
static void refine(scan *s, int16_t *coefficient) {
    if (take(s, 1) == 0 || (*coefficient & 1 << s->low) != 0) return;
    *coefficient = (int16_t)(*coefficient + (*coefficient > 0 ? 1 << s->low : -(1 << s->low)));
}

/* One more bit of coefficients that are not zero, and those of which this is the first one. */
static void refine_others(scan *s, uint32_t part, int16_t *block) {
    uint32_t k = s->begin;
    while (k <= s->end && s->skipped == 0 && !s->broken) {
        uint32_t found = symbol(s, s->others[part]), run = found >> 4, size = found & 15;
        int value = 0;
        if (size > 1) s->broken = true;
        if (size == 0 && run < 15) {
            s->skipped = (1u << run) + take(s, run);
            break;
        }
        if (size == 1) value = take(s, 1) ? 1 << s->low : -(1 << s->low);
        for (; k <= s->end && !s->broken; k++) {
            int16_t *coefficient = &block[nnefc_jpeg_order[k]];
            if (*coefficient != 0)
                refine(s, coefficient);
            else if (run-- == 0) {
                *coefficient = (int16_t)value;
                k++;
                break;
            }
        }
    }
    if (s->skipped == 0) return;
    for (; k <= s->end && !s->broken; k++)
        if (block[nnefc_jpeg_order[k]] != 0) refine(s, &block[nnefc_jpeg_order[k]]);
    s->skipped--;
}

static void read_block(scan *s, uint32_t part, int16_t *block) {
    if (s->begin == 0) {
        if (s->high == 0)
            read_first(s, part, block);
        else if (take(s, 1))
            block[0] = (int16_t)(block[0] | 1 << s->low);
    }
    if (s->end == 0 || s->broken) return;
    if (s->high == 0)
        read_others(s, part, block);
    else
        refine_others(s, part, block);
}

/* Goes on behind a restart marker. */
static void restart(scan *s) {
    const nnefc_bytes *file = &s->jpeg->file;
    s->bits = s->held = s->skipped = 0;
    memset(s->predicted, 0, sizeof s->predicted);
    uint32_t marker = nnefc_big16(*file, s->at);
    if (marker < 0xFFD0 || marker > 0xFFD7) s->broken = true;
    s->at += 2;
}

static int16_t *block_at(const nnefc_jpeg_part *part, uint32_t row, uint32_t column) {
    return part->coefficients + ((size_t)row * part->columns + column) * NNEFC_BLOCK;
}

/* One group of blocks; a scan of one part has single blocks, those that lie in the image. */
static void read_group(scan *s, uint32_t row, uint32_t column) {
    if (s->part_count == 1) {
        read_block(s, 0, block_at(s->parts[0], row, column));
        return;
    }
    for (uint32_t i = 0; i < s->part_count; i++) {
        const nnefc_jpeg_part *part = s->parts[i];
        for (uint32_t y = 0; y < part->down; y++)
            for (uint32_t x = 0; x < part->across && !s->broken; x++)
                read_block(s, i, block_at(part, row * part->down + y, column * part->across + x));
    }
}

static bool read_header(scan *s, nnefc_bytes segment) {
    nnefc_jpeg *jpeg = s->jpeg;
    s->part_count = nnefc_byte_at(segment, 0);
    if (s->part_count == 0 || s->part_count > jpeg->part_count || segment.size < 4 + 2 * (size_t)s->part_count) return false;
    for (uint32_t i = 0; i < s->part_count; i++) {
        uint32_t id = segment.data[1 + 2 * i], codes = segment.data[2 + 2 * i];
        for (uint32_t j = 0; j < jpeg->part_count; j++)
            if (jpeg->parts[j].id == id) s->parts[i] = &jpeg->parts[j];
        if (s->parts[i] == NULL || codes >> 4 > 3 || (codes & 15) > 3) return false;
        s->first[i] = &jpeg->codes[0][codes >> 4], s->others[i] = &jpeg->codes[1][codes & 15];
    }
    const uint8_t *last = segment.data + 1 + 2 * s->part_count;
    s->begin = last[0], s->end = last[1], s->high = last[2] >> 4, s->low = last[2] & 15;
    if (!jpeg->is_progressive) s->begin = 0, s->end = 63, s->high = s->low = 0;
    if (s->begin > s->end || s->end > 63 || s->low > 13 || (s->high != 0 && s->high != s->low + 1)) return false;
    if (jpeg->is_progressive && ((s->begin == 0 && s->end != 0) || (s->begin != 0 && s->part_count > 1))) return false;
    for (uint32_t i = 0; i < s->part_count; i++)
        if ((s->begin == 0 && s->high == 0 && !s->first[i]->exists) || (s->end > 0 && !s->others[i]->exists)) return false;
    return true;
}

bool nnefc_jpeg_scan(nnefc_jpeg *jpeg) {
    scan s = {.jpeg = jpeg};
    size_t size = nnefc_big16(jpeg->file, jpeg->at);
    nnefc_bytes segment = {jpeg->file.data + jpeg->at + 2, size - 2};
    if (!read_header(&s, segment)) return false;
    s.at = jpeg->at + size;
    const nnefc_jpeg_part *only = s.parts[0];
    uint32_t across = only->columns / only->across, down = only->rows / only->down;
    if (s.part_count == 1) across = (only->width + 7) / 8, down = (only->height + 7) / 8;
    uint32_t left = jpeg->restart;
    for (uint32_t row = 0; row < down && !s.broken; row++)
        for (uint32_t column = 0; column < across && !s.broken; column++) {
            if (jpeg->restart > 0 && left-- == 0) restart(&s), left = jpeg->restart - 1;
            read_group(&s, row, column);
        }
    jpeg->at = s.at;
    return !s.broken;
}

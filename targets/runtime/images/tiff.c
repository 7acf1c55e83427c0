/* TIFF 6.0: the first image of a file, in strips, of 1, 4, 8 or 16 bits a sample; not compressed, or by PackBits, LZW or zlib. */
#include <stdlib.h>
#include <string.h>

#include "images/images.h"

enum { WHITE_IS_ZERO = 0, BLACK_IS_ZERO = 1, RGB = 2, PALETTE = 3 };
enum { NONE = 1, LZW = 5, DEFLATE = 8, OLD_DEFLATE = 32946, PACK_BITS = 32773 };
enum { BYTE = 1, SHORT = 3, LONG = 4, MAX_CODES = 4096 };

typedef struct file_order {
    nnefc_bytes bytes;
    bool is_big;
} file_order;

/* The values of a field: where they are, of which type, how many. */
typedef struct field {
    size_t at;
    uint32_t type, count;
} field;

typedef struct header {
    uint32_t width, height, bits, compression, colour, channels, rows, predictor, planar;
    field offsets, sizes, map;
    bool has_tiles;
} header;

static uint32_t number16(const file_order *file, size_t at) {
    return file->is_big ? nnefc_big16(file->bytes, at) : nnefc_little16(file->bytes, at);
}

static uint32_t number32(const file_order *file, size_t at) {
    return file->is_big ? nnefc_big32(file->bytes, at) : nnefc_little32(file->bytes, at);
}

static uint32_t value(const file_order *file, field from, uint32_t index) {
    if (index >= from.count) return 0;
    if (from.type == SHORT) return number16(file, from.at + 2 * (size_t)index);
    return from.type == LONG ? number32(file, from.at + 4 * (size_t)index) : nnefc_byte_at(file->bytes, from.at + index);
}

static void read_field(const file_order *file, size_t at, header *head) {
    field found = {at + 8, number16(file, at + 2), number32(file, at + 4)};
    size_t wide = found.type == SHORT ? 2 : found.type == LONG ? 4 : 1;
    if (found.type != BYTE && found.type != SHORT && found.type != LONG) return;
    if (found.count > 4 / wide) found.at = number32(file, at + 8);
    if (found.at > file->bytes.size || found.count > (file->bytes.size - found.at) / wide) return;
    uint32_t first = value(file, found, 0);
    switch (number16(file, at)) {
    case 256: head->width = first; break;
    case 257: head->height = first; break;
    case 258: head->bits = first; break;
    case 259: head->compression = first; break;
    case 262: head->colour = first; break;
    case 273: head->offsets = found; break;
    case 277: head->channels = first; break;
    case 278: head->rows = first; break;
    case 279: head->sizes = found; break;
    case 284: head->planar = first; break;
    case 317: head->predictor = first; break;
    case 320: head->map = found; break;
    case 322: head->has_tiles = true; break;
    default: break;
    }
}

static nnefc_image_status read_header(const file_order *file, header *head) {
    size_t at = number32(file, 4);
    uint32_t count = number16(file, at);
    if (at + 2 + 12 * (size_t)count > file->bytes.size) return NNEFC_IMAGE_BROKEN;
    for (uint32_t i = 0; i < count; i++) read_field(file, at + 2 + 12 * (size_t)i, head);
    if (head->channels == 0 || head->channels > 8 || head->rows == 0) return NNEFC_IMAGE_BROKEN;
    uint32_t bits = head->bits, how = head->compression;
    bool fits = bits == 1 || bits == 4 || bits == 8 || bits == 16;
    bool known = how == NONE || how == LZW || how == DEFLATE || how == OLD_DEFLATE || how == PACK_BITS;
    if (head->has_tiles || head->planar != 1 || !fits || !known || head->colour > PALETTE || head->predictor > 2 ||
        (head->predictor == 2 && bits != 8))
        return NNEFC_IMAGE_UNSUPPORTED;
    if (head->colour == RGB && (head->channels < 3 || bits < 8)) return NNEFC_IMAGE_BROKEN;
    if (head->colour == PALETTE && (bits > 8 || head->map.count < 3u << bits)) return NNEFC_IMAGE_BROKEN;
    return nnefc_image_fits(head->width, head->height, head->channels * bits) ? NNEFC_IMAGE_READ : NNEFC_IMAGE_BROKEN;
}

static bool unpack_bits(nnefc_bytes in, uint8_t *out, size_t room) {
    size_t made = 0, at = 0;
    while (made < room && at < in.size) {
        int sign = (int8_t)in.data[at++];
        size_t count = sign >= 0 ? (size_t)sign + 1 : sign == -128 ? 0 : (size_t)(1 - sign);
        if (count > room - made) count = room - made;
        if (count > 0 && (sign >= 0 ? count : 1) > in.size - at) return false;
        for (size_t i = 0; i < count; i++) out[made++] = in.data[sign >= 0 ? at + i : at];
        at += sign >= 0 ? count : count > 0 ? 1 : 0;
    }
    return made == room;
}

/* Bytes that codes stand for, each the bytes of an earlier code and one more: where they were written, and how many. */
typedef struct words {
    size_t starts[MAX_CODES], sizes[MAX_CODES];
} words;

static bool unpack_words(nnefc_bytes in, uint8_t *out, size_t room, words *known) {
    enum { CLEAR = 256, END = 257 };
    size_t made = 0, bit = 0, last_start = 0, last_size = 0;
    uint32_t next = 258, width = 9;
    while (made < room && bit + width <= 8 * in.size) {
        size_t at = bit / 8;
        uint32_t code = (nnefc_big16(in, at) << 8 | nnefc_byte_at(in, at + 2)) >> (24 - width - bit % 8) & ((1u << width) - 1);
        bit += width;
        if (code == END) break;
        if (code == CLEAR) {
            next = 258, width = 9, last_size = 0;
            continue;
        }
        size_t start = made;
        if (last_size > 0 && next < MAX_CODES) known->starts[next] = last_start, known->sizes[next++] = last_size + 1;
        if (code < CLEAR)
            out[made++] = (uint8_t)code;
        else {
            if (code >= next) return false;
            size_t size = known->sizes[code] < room - made ? known->sizes[code] : room - made;
            for (size_t i = 0; i < size; i++, made++) out[made] = out[known->starts[code] + i];
        }
        last_start = start, last_size = made - start;
        width = next >= 2047 ? 12 : next >= 1023 ? 11 : next >= 511 ? 10 : 9;
    }
    return made == room;
}

static bool unpack(const header *head, nnefc_bytes in, uint8_t *out, size_t room) {
    switch (head->compression) {
    case NONE:
        if (in.size < room) return false;
        memcpy(out, in.data, room);
        return true;
    case PACK_BITS: return unpack_bits(in, out, room);
    case LZW: {
        words *known = malloc(sizeof *known);
        bool holds = known != NULL && unpack_words(in, out, room, known);
        free(known);
        return holds;
    }
    default: return nnefc_inflate(in, out, room);
    }
}

static uint32_t sample(const file_order *file, const header *head, const uint8_t *row, size_t number) {
    if (head->bits == 8) return row[number];
    if (head->bits == 16) return row[2 * number + (file->is_big ? 0 : 1)];
    size_t bit = number * head->bits;
    return (uint32_t)row[bit / 8] >> (8 - head->bits - bit % 8) & ((1u << head->bits) - 1);
}

static void put_row(const file_order *file, const header *head, const uint8_t *row, uint8_t *rgb) {
    uint32_t maximum = head->bits >= 8 ? 255 : (1u << head->bits) - 1;
    for (size_t x = 0; x < head->width; x++, rgb += 3) {
        uint32_t first = sample(file, head, row, x * head->channels);
        for (uint32_t c = 0; c < 3; c++) {
            uint32_t own = head->colour == RGB ? sample(file, head, row, x * head->channels + c) : first;
            if (head->colour == PALETTE)
                rgb[c] = (uint8_t)(value(file, head->map, (c << head->bits) + first) >> 8);
            else
                rgb[c] = (uint8_t)((head->colour == WHITE_IS_ZERO ? maximum - own : own) * 255 / maximum);
        }
    }
}

static void undo_predictor(const header *head, uint8_t *row) {
    for (size_t i = head->channels; i < (size_t)head->width * head->channels; i++)
        row[i] = (uint8_t)(row[i] + row[i - head->channels]);
}

/* The rows of a strip; `data` has room for them. */
static bool read_strip(const file_order *file, const header *head, uint32_t strip, uint8_t *data, nnefc_image *image) {
    size_t first = (size_t)strip * head->rows, stride = ((size_t)head->width * head->channels * head->bits + 7) / 8;
    size_t rows = head->height - first < head->rows ? head->height - first : head->rows;
    nnefc_bytes in = nnefc_bytes_from(file->bytes, value(file, head->offsets, strip));
    size_t size = value(file, head->sizes, strip), room = rows * stride, maximum = 4 * room + 256;
    if (size > maximum) size = maximum; /* no encoder packs so badly; and strips that share bytes cost no more than the image */
    if (size < in.size) in.size = size;
    if (!unpack(head, in, data, room)) return false;
    for (size_t y = 0; y < rows; y++) {
        if (head->predictor == 2) undo_predictor(head, data + y * stride);
        put_row(file, head, data + y * stride, image->rgb + 3 * (first + y) * image->width);
    }
    return true;
}

nnefc_image_status nnefc_read_tiff(nnefc_bytes bytes, nnefc_image *image) {
    enum { MAX_RATIO = 1 << 12 }; /* bytes that one byte can become */
    file_order file = {bytes, bytes.data[0] == 'M'};
    header head = {0, 0, 1, NONE, BLACK_IS_ZERO, 1, UINT32_MAX, 1, 1, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, false};
    nnefc_image_status status = read_header(&file, &head);
    if (status != NNEFC_IMAGE_READ) return status;
    if (head.rows > head.height) head.rows = head.height;
    size_t stride = ((size_t)head.width * head.channels * head.bits + 7) / 8;
    if (stride * head.height / MAX_RATIO > bytes.size) return NNEFC_IMAGE_BROKEN;
    uint8_t *data = nnefc_image_begin(image, head.width, head.height) ? malloc(stride * head.rows) : NULL;
    bool holds = data != NULL;
    for (uint32_t strip = 0; holds && (size_t)strip * head.rows < head.height; strip++)
        holds = read_strip(&file, &head, strip, data, image);
    free(data);
    return holds ? NNEFC_IMAGE_READ : NNEFC_IMAGE_BROKEN;
}

/* PNG, of every colour type and depth: https://www.w3.org/TR/png-3/. Transparency is left out, checksums are not looked at. */
#include <stdlib.h>
#include <string.h>

#include "images/images.h"

enum { GRAY = 0, TRUE_COLOUR = 2, PALETTE = 3, GRAY_ALPHA = 4, COLOUR_ALPHA = 6 };
enum { MAX_RATIO = 1032 }; /* bytes that one byte can become */

typedef struct header {
    uint32_t width, height, depth, colour, interlace;
    uint32_t channels;
    const uint8_t *palette;
    uint32_t colours;
} header;

/* One of the reduced images of an interlaced one, or the whole: its first pixel and the steps to the next. */
typedef struct part {
    uint8_t x, y, dx, dy;
} part;

static const part parts[] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
static const part whole = {0, 0, 1, 1};

static uint32_t positions(uint32_t size, uint32_t first, uint32_t step) {
    return size > first ? (size - first + step - 1) / step : 0;
}

static size_t row_bytes(const header *head, uint32_t width) {
    return ((size_t)width * head->channels * head->depth + 7) / 8;
}

static size_t part_bytes(const header *head, part p) {
    uint32_t width = positions(head->width, p.x, p.dx);
    return width == 0 ? 0 : positions(head->height, p.y, p.dy) * (row_bytes(head, width) + 1);
}

static size_t all_bytes(const header *head) {
    if (!head->interlace) return part_bytes(head, whole);
    size_t sum = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) sum += part_bytes(head, parts[i]);
    return sum;
}

static uint8_t nearest(int left, int above, int corner) {
    int guess = left + above - corner;
    int to_left = abs(guess - left), to_above = abs(guess - above), to_corner = abs(guess - corner);
    return (uint8_t)(to_left <= to_above && to_left <= to_corner ? left : to_above <= to_corner ? above : corner);
}

/* Turns differences from neighbours into bytes; `above` is null in the first row. */
static bool undo_filter(uint8_t *row, const uint8_t *above, size_t size, size_t step, uint8_t filter) {
    if (filter > 4) return false;
    for (size_t i = 0; i < size; i++) {
        int left = i >= step ? row[i - step] : 0, up = above != NULL ? above[i] : 0;
        int corner = i >= step && above != NULL ? above[i - step] : 0;
        int guess = filter == 1 ? left : filter == 2 ? up : filter == 3 ? (left + up) / 2 : 0;
        if (filter == 4) guess = nearest(left, up, corner);
        row[i] = (uint8_t)(row[i] + guess);
    }
    return true;
}

static uint32_t sample(const header *head, const uint8_t *row, size_t number) {
    if (head->depth == 8) return row[number];
    if (head->depth == 16) return row[2 * number];
    size_t bit = number * head->depth;
    return (uint32_t)row[bit / 8] >> (8 - head->depth - bit % 8) & ((1u << head->depth) - 1);
}

static bool put_pixel(const header *head, const uint8_t *row, size_t x, uint8_t *rgb) {
    uint32_t first = sample(head, row, x * head->channels);
    if (head->colour == PALETTE) {
        if (first >= head->colours) return false;
        memcpy(rgb, head->palette + 3 * first, 3);
    } else if (head->channels >= 3) {
        for (size_t c = 0; c < 3; c++) rgb[c] = (uint8_t)sample(head, row, x * head->channels + c);
    } else
        memset(rgb, head->depth < 8 ? (int)(first * 255 / ((1u << head->depth) - 1)) : (int)first, 3);
    return true;
}

static bool unpack(const header *head, part p, uint8_t *data, nnefc_image *image) {
    uint32_t width = positions(head->width, p.x, p.dx), height = positions(head->height, p.y, p.dy);
    size_t size = row_bytes(head, width), step = (head->channels * head->depth + 7) / 8;
    const uint8_t *above = NULL;
    for (uint32_t y = 0; y < height && width > 0; y++) {
        uint8_t *row = data + y * (size + 1) + 1;
        if (!undo_filter(row, above, size, step, row[-1])) return false;
        uint8_t *to = image->rgb + 3 * ((size_t)(p.y + y * p.dy) * image->width + p.x);
        for (uint32_t x = 0; x < width; x++, to += 3 * (size_t)p.dx)
            if (!put_pixel(head, row, x, to)) return false;
        above = row;
    }
    return true;
}

static bool read_header(nnefc_bytes file, header *head) {
    static const uint8_t channels[] = {1, 0, 3, 1, 2, 0, 4};
    if (nnefc_big32(file, 8) != 13 || nnefc_big32(file, 12) != 0x49484452) return false; /* IHDR */
    head->width = nnefc_big32(file, 16), head->height = nnefc_big32(file, 20);
    head->depth = nnefc_byte_at(file, 24), head->colour = nnefc_byte_at(file, 25);
    head->interlace = nnefc_byte_at(file, 28);
    if (head->colour > COLOUR_ALPHA || channels[head->colour] == 0 || head->interlace > 1) return false;
    if (nnefc_byte_at(file, 26) != 0 || nnefc_byte_at(file, 27) != 0) return false;
    head->channels = channels[head->colour];
    uint32_t depth = head->depth;
    if (head->colour == GRAY) return depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16;
    if (head->colour == PALETTE) return depth == 1 || depth == 2 || depth == 4 || depth == 8;
    return depth == 8 || depth == 16;
}

/* Finds the palette, and joins the compressed data in `joined`, which has the size of the file. */
static size_t join(nnefc_bytes file, header *head, uint8_t *joined) {
    size_t size = 0, at = 33;
    while (at + 12 <= file.size) {
        size_t length = nnefc_big32(file, at);
        uint32_t name = nnefc_big32(file, at + 4);
        if (length > file.size - at - 12) break;
        if (name == 0x504C5445 && length % 3 == 0 && length <= 768) /* PLTE */
            head->palette = file.data + at + 8, head->colours = (uint32_t)length / 3;
        if (name == 0x49444154) memcpy(joined + size, file.data + at + 8, length), size += length; /* IDAT */
        if (name == 0x49454E44) break;                                                              /* IEND */
        at += length + 12;
    }
    return size;
}

static bool read_pixels(const header *head, nnefc_bytes packed, nnefc_image *image) {
    size_t size = all_bytes(head);
    if (size / MAX_RATIO > packed.size || !nnefc_image_begin(image, head->width, head->height)) return false;
    uint8_t *data = malloc(size);
    bool holds = data != NULL && nnefc_inflate(packed, data, size);
    if (!head->interlace) holds = holds && unpack(head, whole, data, image);
    uint8_t *at = data;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && holds && head->interlace; i++) {
        holds = unpack(head, parts[i], at, image);
        at += part_bytes(head, parts[i]);
    }
    free(data);
    return holds;
}

nnefc_image_status nnefc_read_png(nnefc_bytes file, nnefc_image *image) {
    header head = {0};
    if (!read_header(file, &head)) return NNEFC_IMAGE_BROKEN;
    if (!nnefc_image_fits(head.width, head.height, head.channels * head.depth)) return NNEFC_IMAGE_BROKEN;
    uint8_t *joined = malloc(file.size);
    if (joined == NULL) return NNEFC_IMAGE_BROKEN;
    nnefc_bytes packed = {joined, join(file, &head, joined)};
    bool holds = read_pixels(&head, packed, image);
    free(joined);
    return holds ? NNEFC_IMAGE_READ : NNEFC_IMAGE_BROKEN;
}

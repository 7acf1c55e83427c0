/* Coefficients to pixels. The arithmetic is that of the Independent JPEG Group's library, so that pixels are the same in each
 * bit: the inverse transform of Loeffler, Ligtenberg and Moschytz with 13 bits, colours that are upsampled by triangles. */
#include <stdlib.h>
#include <string.h>

#include "images/jpeg.h"

enum { SCALE = 13, EXTRA = 2 };
#define FIXED(x) ((int64_t)((x) * (1 << SCALE) + 0.5)) /* sums of hostile coefficients must not overflow */

static uint8_t clamped(int64_t x) { return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x); }

/* The sums behind which eight values are, apart from a shift: of four even and four odd ones. */
static void transform(const int64_t in[8], int64_t even[4], int64_t odd[4]) {
    int64_t z1 = (in[2] + in[6]) * FIXED(0.541196100);
    int64_t t2 = z1 - in[6] * FIXED(1.847759065), t3 = z1 + in[2] * FIXED(0.765366865);
    int64_t t0 = (in[0] + in[4]) * (1 << SCALE), t1 = (in[0] - in[4]) * (1 << SCALE);
    even[0] = t0 + t3, even[3] = t0 - t3, even[1] = t1 + t2, even[2] = t1 - t2;
    int64_t a = in[7], b = in[5], c = in[3], d = in[1];
    int64_t y1 = a + d, y2 = b + c, y3 = a + c, y4 = b + d, y5 = (y3 + y4) * FIXED(1.175875602);
    y1 *= -FIXED(0.899976223), y2 *= -FIXED(2.562915447);
    y3 = y3 * -FIXED(1.961570560) + y5, y4 = y4 * -FIXED(0.390180644) + y5;
    odd[3] = a * FIXED(0.298631336) + y1 + y3, odd[2] = b * FIXED(2.053119869) + y2 + y4;
    odd[1] = c * FIXED(3.072711026) + y2 + y3, odd[0] = d * FIXED(1.501321110) + y1 + y4;
}

static int64_t rounded(int64_t x, int shift) { return (x + (1 << (shift - 1))) >> shift; }

static void inverse(const int16_t *block, const uint16_t *steps, uint8_t *out, size_t stride) {
    int64_t work[NNEFC_BLOCK], in[8], even[4], odd[4];
    for (int x = 0; x < 8; x++) {
        for (int y = 0; y < 8; y++) in[y] = (int64_t)block[8 * y + x] * steps[8 * y + x];
        transform(in, even, odd);
        for (int i = 0; i < 4; i++) {
            work[8 * i + x] = rounded(even[i] + odd[i], SCALE - EXTRA);
            work[8 * (7 - i) + x] = rounded(even[i] - odd[i], SCALE - EXTRA);
        }
    }
    for (int y = 0; y < 8; y++, out += stride) {
        transform(work + 8 * y, even, odd);
        for (int i = 0; i < 4; i++) {
            out[i] = clamped(rounded(even[i] + odd[i], SCALE + EXTRA + 3) + 128);
            out[7 - i] = clamped(rounded(even[i] - odd[i], SCALE + EXTRA + 3) + 128);
        }
    }
}

static void make_samples(const nnefc_jpeg *jpeg, nnefc_jpeg_part *part) {
    size_t stride = 8 * (size_t)part->columns;
    for (size_t row = 0; row < part->rows; row++)
        for (size_t column = 0; column < part->columns; column++)
            inverse(part->coefficients + (row * part->columns + column) * NNEFC_BLOCK, jpeg->quantization[part->table],
                    part->samples + 8 * row * stride + 8 * column, stride);
}

static const uint8_t *row_of(const nnefc_jpeg_part *part, int64_t row) {
    int64_t last = (int64_t)part->height - 1, near = row < 0 ? 0 : row > last ? last : row;
    return part->samples + (size_t)near * 8 * part->columns;
}

/* A row twice as wide: three quarters of the nearest sample and a quarter of the next, rounded up and down in turns. The samples are
 * those of one row, or three times those of one and once those of the next one. */
static void widen(const nnefc_jpeg_part *part, const uint8_t *near, const uint8_t *far, uint8_t *out) {
    uint32_t count = part->width, low = far != NULL ? 8 : 1, high = far != NULL ? 7 : 2;
    int shift = far != NULL ? 4 : 2;
#define SUM(i) (far != NULL ? 3u * near[i] + far[i] : (uint32_t)near[i])
    for (uint32_t x = 0; x < count; x++) {
        uint32_t own = SUM(x), left = x > 0 ? SUM(x - 1) : own, right = x + 1 < count ? SUM(x + 1) : own;
        out[2 * x] = (uint8_t)((3 * own + left + low) >> shift);
        out[2 * x + 1] = (uint8_t)((3 * own + right + high) >> shift);
        if (x == 0) out[0] = (uint8_t)(far != NULL ? (4 * own + 8) >> 4 : own);
        if (x + 1 == count) out[2 * x + 1] = (uint8_t)(far != NULL ? (4 * own + 7) >> 4 : own);
    }
#undef SUM
}

/* A row of the image's width, of one part; `out` has room for whole groups of blocks. */
static void part_row(const nnefc_jpeg *jpeg, const nnefc_jpeg_part *part, uint32_t y, uint8_t *out) {
    uint32_t across = jpeg->max_across / part->across, down = jpeg->max_down / part->down;
    bool whole = jpeg->max_across % part->across == 0 && jpeg->max_down % part->down == 0;
    int64_t row = (int64_t)y * part->down / jpeg->max_down, next = y % 2 == 0 ? row - 1 : row + 1;
    if (whole && across == 2 && down <= 2 && part->width > 2)
        widen(part, row_of(part, row), down == 2 ? row_of(part, next) : NULL, out);
    else if (whole && across == 1 && down == 2) {
        const uint8_t *near = row_of(part, row), *far = row_of(part, next);
        for (uint32_t x = 0; x < part->width; x++) out[x] = (uint8_t)((3 * near[x] + far[x] + (y % 2 == 0 ? 1 : 2)) >> 2);
    } else
        for (uint32_t x = 0; x < jpeg->width; x++)
            out[x] = row_of(part, row)[(uint64_t)x * part->across / jpeg->max_across];
}

static int32_t scaled(int32_t x, double factor) { return (x * (int32_t)(factor * 65536 + 0.5) + 32768) >> 16; }

/* Y, Cb and Cr to red, green and blue: ITU-R BT.601. */
static void to_rgb(int32_t y, int32_t blue, int32_t red, uint8_t *rgb) {
    blue -= 128, red -= 128;
    rgb[0] = clamped(y + scaled(red, 1.402));
    rgb[1] = clamped(y + ((-blue * 22554 - red * 46802 + 32768) >> 16));
    rgb[2] = clamped(y + scaled(blue, 1.772));
}

/* Inks, of which Adobe's files have what is left out. */
static void put_inks(const nnefc_jpeg *jpeg, uint8_t *const rows[], uint32_t x, uint8_t *rgb) {
    uint8_t inks[3] = {rows[0][x], rows[1][x], rows[2][x]};
    uint32_t black = rows[3][x];
    if (jpeg->has_adobe && jpeg->adobe_transform == 2) to_rgb(rows[0][x], rows[1][x], rows[2][x], inks);
    for (int c = 0; c < 3; c++) {
        uint32_t value = jpeg->has_adobe ? inks[c] * black : (255u - inks[c]) * (255u - black);
        rgb[c] = (uint8_t)((value + 127) / 255);
    }
}

static bool is_rgb(const nnefc_jpeg *jpeg) {
    if (jpeg->has_adobe) return jpeg->adobe_transform == 0;
    return jpeg->parts[0].id == 'R' && jpeg->parts[1].id == 'G' && jpeg->parts[2].id == 'B';
}

static void put_row(const nnefc_jpeg *jpeg, uint8_t *const rows[], uint8_t *rgb) {
    for (uint32_t x = 0; x < jpeg->width; x++, rgb += 3) {
        if (jpeg->part_count == 1)
            memset(rgb, rows[0][x], 3);
        else if (jpeg->part_count == 4)
            put_inks(jpeg, rows, x, rgb);
        else if (is_rgb(jpeg))
            rgb[0] = rows[0][x], rgb[1] = rows[1][x], rgb[2] = rows[2][x];
        else
            to_rgb(rows[0][x], rows[1][x], rows[2][x], rgb);
    }
}

bool nnefc_jpeg_pixels(nnefc_jpeg *jpeg, nnefc_image *image) {
    if (!nnefc_image_begin(image, jpeg->width, jpeg->height)) return false;
    size_t room = (size_t)jpeg->width + 64;
    uint8_t *memory = malloc(room * NNEFC_JPEG_PARTS), *rows[NNEFC_JPEG_PARTS];
    if (memory == NULL) return false;
    for (size_t i = 0; i < NNEFC_JPEG_PARTS; i++) rows[i] = memory + i * room;
    for (uint32_t i = 0; i < jpeg->part_count; i++) make_samples(jpeg, &jpeg->parts[i]);
    for (uint32_t y = 0; y < jpeg->height; y++) {
        for (uint32_t i = 0; i < jpeg->part_count; i++) part_row(jpeg, &jpeg->parts[i], y, rows[i]);
        put_row(jpeg, rows, image->rgb + 3 * (size_t)y * image->width);
    }
    free(memory);
    return true;
}

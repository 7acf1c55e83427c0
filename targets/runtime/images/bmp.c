/* BMP without compression, of 1 to 32 bits a pixel, with or without masks of its own. */
#include "images/images.h"

enum { UNCOMPRESSED = 0, RLE8 = 1, RLE4 = 2, MASKS = 3, MASKS_ALPHA = 6 };

typedef struct header {
    size_t pixels, palette, colours, step; /* where they are, how many colours, bytes of each */
    uint32_t width, height, bits, masks[3];
    bool from_top;
} header;

/* The bits under a mask, as a number up to 255. */
static uint8_t under(uint32_t value, uint32_t mask) {
    if (mask == 0) return 0;
    while ((mask & 1) == 0) mask >>= 1, value >>= 1;
    return (uint8_t)((uint64_t)(value & mask) * 255 / mask);
}

static nnefc_image_status read_header(nnefc_bytes file, header *head) {
    size_t size = nnefc_little32(file, 14);
    bool is_old = size == 12; /* OS/2 */
    int32_t height = is_old ? (int32_t)nnefc_little16(file, 20) : (int32_t)nnefc_little32(file, 22);
    uint32_t kind = is_old ? UNCOMPRESSED : nnefc_little32(file, 30);
    head->width = is_old ? nnefc_little16(file, 18) : nnefc_little32(file, 18);
    head->height = height < 0 ? 0u - (uint32_t)height : (uint32_t)height;
    head->from_top = height < 0;
    head->bits = nnefc_little16(file, is_old ? 24 : 28);
    head->pixels = nnefc_little32(file, 10);
    head->palette = 14 + size, head->step = is_old ? 3 : 4;
    if ((!is_old && size < 40) || size > 256) return NNEFC_IMAGE_BROKEN;
    if (kind == RLE8 || kind == RLE4) return NNEFC_IMAGE_UNSUPPORTED;
    if (kind != UNCOMPRESSED && kind != MASKS && kind != MASKS_ALPHA) return NNEFC_IMAGE_UNSUPPORTED;
    bool is_five = head->bits == 16;
    for (size_t c = 0; c < 3; c++)
        head->masks[c] = kind != UNCOMPRESSED ? nnefc_little32(file, 54 + 4 * c) : is_five ? 0x7C00u >> 5 * c : 0xFF0000u >> 8 * c;
    head->colours = is_old ? 0 : nnefc_little32(file, 46);
    if (head->bits <= 8 && (head->colours == 0 || head->colours > 1u << head->bits)) head->colours = 1u << head->bits;
    bool known = head->bits == 1 || head->bits == 4 || head->bits == 8 || head->bits == 16 || head->bits == 24 || head->bits == 32;
    return known && nnefc_image_fits(head->width, head->height, head->bits) ? NNEFC_IMAGE_READ : NNEFC_IMAGE_BROKEN;
}

static bool put_pixel(nnefc_bytes file, const header *head, size_t row, size_t x, uint8_t *rgb) {
    if (head->bits <= 8) {
        size_t bit = x * head->bits;
        size_t number = nnefc_byte_at(file, row + bit / 8) >> (8 - head->bits - bit % 8) & ((1u << head->bits) - 1);
        size_t at = head->palette + number * head->step;
        if (number >= head->colours || at + 3 > file.size) return false;
        rgb[0] = file.data[at + 2], rgb[1] = file.data[at + 1], rgb[2] = file.data[at];
    } else if (head->bits == 24) {
        const uint8_t *at = file.data + row + 3 * x;
        rgb[0] = at[2], rgb[1] = at[1], rgb[2] = at[0];
    } else {
        uint32_t value = head->bits == 16 ? nnefc_little16(file, row + 2 * x) : nnefc_little32(file, row + 4 * x);
        for (size_t c = 0; c < 3; c++) rgb[c] = under(value, head->masks[c]);
    }
    return true;
}

nnefc_image_status nnefc_read_bmp(nnefc_bytes file, nnefc_image *image) {
    header head = {0};
    nnefc_image_status status = read_header(file, &head);
    if (status != NNEFC_IMAGE_READ) return status;
    size_t stride = ((size_t)head.width * head.bits + 31) / 32 * 4;
    size_t minimum = stride * (head.height - 1) + ((size_t)head.width * head.bits + 7) / 8;
    if (head.pixels > file.size || minimum > file.size - head.pixels) return NNEFC_IMAGE_BROKEN;
    if (!nnefc_image_begin(image, head.width, head.height)) return NNEFC_IMAGE_BROKEN;
    for (size_t y = 0; y < head.height; y++) {
        size_t row = head.pixels + stride * (head.from_top ? y : head.height - 1 - y);
        for (size_t x = 0; x < head.width; x++)
            if (!put_pixel(file, &head, row, x, image->rgb + 3 * (y * head.width + x))) return NNEFC_IMAGE_BROKEN;
    }
    return NNEFC_IMAGE_READ;
}

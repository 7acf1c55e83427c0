/* Portable bitmaps, graymaps and pixmaps, as text (P1 to P3) and as bytes (P4 to P6). */
#include "images/images.h"

static bool is_space(uint32_t c) { return c == ' ' || (c >= 9 && c <= 13); }

/* A number behind spaces and comments; false if there is none. A bitmap as text has single digits, without spaces. */
static bool number(nnefc_bytes file, size_t *at, bool is_digit, uint32_t *found) {
    while (*at < file.size && (is_space(file.data[*at]) || file.data[*at] == '#')) {
        if (file.data[*at] == '#')
            while (*at < file.size && file.data[*at] != '\n') ++*at;
        else
            ++*at;
    }
    size_t start = *at;
    uint64_t value = 0;
    while (*at < file.size && file.data[*at] >= '0' && file.data[*at] <= '9' && value <= UINT32_MAX) {
        value = 10 * value + (file.data[(*at)++] - '0');
        if (is_digit) break;
    }
    *found = (uint32_t)value;
    return *at > start && value <= UINT32_MAX;
}

static uint8_t scaled(uint32_t value, uint32_t maximum) {
    if (value > maximum) value = maximum;
    return (uint8_t)(maximum == 255 ? value : ((uint64_t)value * 255 + maximum / 2) / maximum);
}

/* Samples as text. */
static bool read_text(nnefc_bytes file, size_t at, uint32_t kind, uint32_t maximum, size_t channels, nnefc_image *image) {
    for (size_t i = 0; i < (size_t)image->width * image->height; i++)
        for (size_t c = 0; c < 3; c++) {
            uint32_t value = 0;
            if (c >= channels) {
                image->rgb[3 * i + c] = image->rgb[3 * i];
                continue;
            }
            if (!number(file, &at, kind == 1, &value)) return false;
            image->rgb[3 * i + c] = kind == 1 ? (value != 0 ? 0 : 255) : scaled(value, maximum);
        }
    return true;
}

/* Samples as bytes, of which there are enough. */
static void read_bytes(nnefc_bytes file, size_t at, uint32_t kind, uint32_t maximum, size_t channels, nnefc_image *image) {
    size_t width = image->width, wide = maximum > 255 ? 2 : 1;
    for (size_t y = 0; y < image->height; y++)
        for (size_t x = 0; x < width; x++)
            for (size_t c = 0; c < 3; c++) {
                uint8_t *to = image->rgb + 3 * (y * width + x) + c;
                size_t offset = at + ((y * width + x) * channels + (c < channels ? c : 0)) * wide;
                if (kind == 4)
                    *to = file.data[at + y * ((width + 7) / 8) + x / 8] >> (7 - x % 8) & 1 ? 0 : 255;
                else
                    *to = scaled(wide == 2 ? nnefc_big16(file, offset) : file.data[offset], maximum);
            }
}

nnefc_image_status nnefc_read_pnm(nnefc_bytes file, nnefc_image *image) {
    uint32_t kind = file.data[1] - '0', width, height, maximum = 1;
    size_t at = 2, channels = kind == 3 || kind == 6 ? 3 : 1;
    if (!number(file, &at, false, &width) || !number(file, &at, false, &height)) return NNEFC_IMAGE_BROKEN;
    if (kind != 1 && kind != 4 && (!number(file, &at, false, &maximum) || maximum == 0 || maximum > 65535)) return NNEFC_IMAGE_BROKEN;
    if (!nnefc_image_fits(width, height, 24)) return NNEFC_IMAGE_BROKEN;
    at++; /* one space, and then the samples */
    size_t row = kind == 4 ? ((size_t)width + 7) / 8 : width * channels * (maximum > 255 ? 2u : 1u);
    if (kind <= 3) row = width * channels; /* characters, at least */
    if (at > file.size || row > (file.size - at) / height) return NNEFC_IMAGE_BROKEN;
    if (!nnefc_image_begin(image, width, height)) return NNEFC_IMAGE_BROKEN;
    if (kind <= 3) return read_text(file, at, kind, maximum, channels, image) ? NNEFC_IMAGE_READ : NNEFC_IMAGE_BROKEN;
    read_bytes(file, at, kind, maximum, channels, image);
    return NNEFC_IMAGE_READ;
}

/* Images from files in memory. The files are hostile: whatever they say is checked against the bytes that are there. */
#ifndef NNEFC_IMAGES_H
#define NNEFC_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Part of a file. */
typedef struct nnefc_bytes {
    const uint8_t *data;
    size_t size;
} nnefc_bytes;

/* Rows from the top, red, green and blue of each pixel. */
typedef struct nnefc_image {
    uint32_t width, height;
    uint8_t *rgb;
} nnefc_image;

typedef enum nnefc_image_status {
    NNEFC_IMAGE_READ,
    NNEFC_IMAGE_BROKEN,      /* the file is cut off, or breaks rules of its format */
    NNEFC_IMAGE_UNSUPPORTED, /* it is of a kind that is not decoded */
} nnefc_image_status;

enum { NNEFC_MAX_PIXELS = 1 << 28 };

/* Whether an image has pixels, and not too many: the bits of all rows, of which a pixel has so many, fit in a size_t,
 * also where that has 32 bits itself. Rows begin at multiples of 32 bits at most. */
static inline bool nnefc_image_fits(uint32_t width, uint32_t height, uint32_t bits) {
    if (width == 0 || height == 0 || width > NNEFC_MAX_PIXELS / height) return false;
    return ((uint64_t)width * bits + 31) * height < SIZE_MAX;
}

/* Makes room for the pixels, until the next run; false if the image has none, or too many. */
bool nnefc_image_begin(nnefc_image *image, uint32_t width, uint32_t height);

nnefc_image_status nnefc_read_jpeg(nnefc_bytes file, nnefc_image *image);
nnefc_image_status nnefc_read_png(nnefc_bytes file, nnefc_image *image);
nnefc_image_status nnefc_read_bmp(nnefc_bytes file, nnefc_image *image);
nnefc_image_status nnefc_read_pnm(nnefc_bytes file, nnefc_image *image);
nnefc_image_status nnefc_read_tiff(nnefc_bytes file, nnefc_image *image);

/* Decompresses a zlib stream; returns whether it fills the buffer. */
bool nnefc_inflate(nnefc_bytes stream, uint8_t *out, size_t room);

/* Numbers of a file; 0 for what is behind its end. */
static inline uint32_t nnefc_byte_at(nnefc_bytes file, size_t at) { return at < file.size ? file.data[at] : 0; }

static inline uint32_t nnefc_little16(nnefc_bytes file, size_t at) {
    return nnefc_byte_at(file, at) | nnefc_byte_at(file, at + 1) << 8;
}

static inline uint32_t nnefc_little32(nnefc_bytes file, size_t at) {
    return nnefc_little16(file, at) | nnefc_little16(file, at + 2) << 16;
}

static inline uint32_t nnefc_big16(nnefc_bytes file, size_t at) {
    return nnefc_byte_at(file, at) << 8 | nnefc_byte_at(file, at + 1);
}

static inline uint32_t nnefc_big32(nnefc_bytes file, size_t at) {
    return nnefc_big16(file, at) << 16 | nnefc_big16(file, at + 2);
}

/* What is left of a file from a position on. */
static inline nnefc_bytes nnefc_bytes_from(nnefc_bytes file, size_t at) {
    size_t start = at < file.size ? at : file.size;
    nnefc_bytes left = {file.data + start, file.size - start};
    return left;
}

#endif

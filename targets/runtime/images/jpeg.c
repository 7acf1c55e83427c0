/* JPEG, sequential and progressive, with Huffman codes and 8 bits a sample: ITU-T T.81 and, for colours, JFIF and Adobe's mark. */
#include "images/jpeg.h"

#include <stdlib.h>
#include <string.h>

const uint8_t nnefc_jpeg_order[NNEFC_BLOCK] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

enum { MAX_SCANS = 500 };

static uint32_t quotient_up(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

static bool read_quantization(nnefc_jpeg *jpeg, nnefc_bytes segment) {
    for (size_t at = 0; at < segment.size;) {
        uint32_t first = segment.data[at++], wide = first >> 4, number = first & 15;
        if (wide > 1 || number > 3 || segment.size - at < (size_t)NNEFC_BLOCK * (wide + 1)) return false;
        for (size_t i = 0; i < NNEFC_BLOCK; i++, at += wide + 1)
            jpeg->quantization[number][nnefc_jpeg_order[i]] =
                (uint16_t)(wide ? nnefc_big16(segment, at) : segment.data[at]);
    }
    return true;
}

static bool read_codes(nnefc_jpeg *jpeg, nnefc_bytes segment) {
    for (size_t at = 0; at < segment.size;) {
        uint32_t kind = segment.data[at] >> 4, number = segment.data[at] & 15;
        if (kind > 1 || number > 3 || segment.size - at < 17) return false;
        const uint8_t *counts = segment.data + at + 1;
        size_t sum = 0;
        for (size_t i = 0; i < NNEFC_CODE_BITS; i++) sum += counts[i];
        nnefc_bytes symbols = {segment.data + at + 17, sum};
        if (sum > 256 || segment.size - at - 17 < sum) return false;
        if (!nnefc_huffman_read(&jpeg->codes[kind][number], counts, symbols)) return false;
        at += 17 + sum;
    }
    return true;
}

static bool lay_out(nnefc_jpeg *jpeg) {
    uint32_t groups_across = quotient_up(jpeg->width, 8 * jpeg->max_across);
    uint32_t groups_down = quotient_up(jpeg->height, 8 * jpeg->max_down);
    for (uint32_t i = 0; i < jpeg->part_count; i++) {
        nnefc_jpeg_part *part = &jpeg->parts[i];
        part->width = quotient_up(jpeg->width * part->across, jpeg->max_across);
        part->height = quotient_up(jpeg->height * part->down, jpeg->max_down);
        part->columns = groups_across * part->across, part->rows = groups_down * part->down;
        size_t blocks = (size_t)part->columns * part->rows;
        part->coefficients = calloc(blocks, NNEFC_BLOCK * sizeof *part->coefficients);
        part->samples = malloc(blocks * NNEFC_BLOCK);
        if (part->coefficients == NULL || part->samples == NULL) return false;
    }
    return true;
}

static bool read_frame(nnefc_jpeg *jpeg, nnefc_bytes segment) {
    if (jpeg->part_count > 0 || segment.size < 6 || segment.data[0] != 8) return false;
    jpeg->height = nnefc_big16(segment, 1), jpeg->width = nnefc_big16(segment, 3);
    uint32_t count = segment.data[5];
    if (count == 0 || count > NNEFC_JPEG_PARTS || segment.size < 6 + 3 * (size_t)count) return false;
    if (!nnefc_image_fits(jpeg->width, jpeg->height, 24)) return false;
    /* A coefficient block takes a bit at least, save in progressive scans, where one code can leave out 32,767. */
    uint64_t blocks = (uint64_t)quotient_up(jpeg->width, 32) * quotient_up(jpeg->height, 32);
    if (blocks > (uint64_t)jpeg->file.size * 8 * (jpeg->is_progressive ? 1 << 12 : 1)) return false;
    for (uint32_t i = 0; i < count; i++) {
        nnefc_jpeg_part *part = &jpeg->parts[i];
        const uint8_t *at = segment.data + 6 + 3 * i;
        part->id = at[0], part->across = at[1] >> 4, part->down = at[1] & 15, part->table = at[2];
        if (part->across == 0 || part->across > 4 || part->down == 0 || part->down > 4 || part->table > 3) return false;
        if (part->across > jpeg->max_across) jpeg->max_across = part->across;
        if (part->down > jpeg->max_down) jpeg->max_down = part->down;
    }
    if (count == 1) { /* its factors mean nothing */
        jpeg->parts[0].across = jpeg->parts[0].down = jpeg->max_across = jpeg->max_down = 1;
    }
    jpeg->part_count = count;
    return lay_out(jpeg);
}

/* Reads one marker and what belongs to it. */
static nnefc_image_status read_segment(nnefc_jpeg *jpeg, uint32_t marker) {
    size_t size = nnefc_big16(jpeg->file, jpeg->at);
    if (size < 2 || size > jpeg->file.size - jpeg->at) return NNEFC_IMAGE_BROKEN;
    nnefc_bytes segment = {jpeg->file.data + jpeg->at + 2, size - 2};
    size_t start = jpeg->at;
    jpeg->at += size;
    bool holds = true;
    if (marker == 0xC0 || marker == 0xC1 || marker == 0xC2) {
        jpeg->is_progressive = marker == 0xC2;
        if (segment.size > 0 && segment.data[0] == 12) return NNEFC_IMAGE_UNSUPPORTED;
        holds = read_frame(jpeg, segment);
    } else if (marker == 0xC4)
        holds = read_codes(jpeg, segment);
    else if (marker >= 0xC3 && marker <= 0xCF && marker != 0xC8)
        return NNEFC_IMAGE_UNSUPPORTED; /* without loss, in a hierarchy, or with arithmetic coding */
    else if (marker == 0xDB)
        holds = read_quantization(jpeg, segment);
    else if (marker == 0xDD)
        jpeg->restart = nnefc_big16(segment, 0);
    else if (marker == 0xEE && segment.size >= 12 && memcmp(segment.data, "Adobe", 5) == 0)
        jpeg->has_adobe = true, jpeg->adobe_transform = segment.data[11];
    else if (marker == 0xDA) {
        jpeg->at = start;
        holds = jpeg->part_count > 0 && jpeg->scans++ < MAX_SCANS && nnefc_jpeg_scan(jpeg);
    }
    return holds ? NNEFC_IMAGE_READ : NNEFC_IMAGE_BROKEN;
}

static nnefc_image_status read_segments(nnefc_jpeg *jpeg) {
    for (jpeg->at = 2;;) {
        while (jpeg->at < jpeg->file.size && jpeg->file.data[jpeg->at] != 0xFF) jpeg->at++;
        while (jpeg->at < jpeg->file.size && jpeg->file.data[jpeg->at] == 0xFF) jpeg->at++;
        uint32_t marker = jpeg->at < jpeg->file.size ? jpeg->file.data[jpeg->at++] : 0xD9; /* some files have no end */
        if (marker == 0xD9) return jpeg->scans > 0 ? NNEFC_IMAGE_READ : NNEFC_IMAGE_BROKEN;
        if (marker == 0 || marker == 1 || (marker >= 0xD0 && marker <= 0xD8)) continue; /* no size follows */
        nnefc_image_status status = read_segment(jpeg, marker);
        if (status != NNEFC_IMAGE_READ) return status;
    }
}

nnefc_image_status nnefc_read_jpeg(nnefc_bytes file, nnefc_image *image) {
    nnefc_jpeg *jpeg = calloc(1, sizeof *jpeg);
    if (jpeg == NULL) return NNEFC_IMAGE_BROKEN;
    jpeg->file = file;
    nnefc_image_status status = read_segments(jpeg);
    if (status == NNEFC_IMAGE_READ && jpeg->part_count == 2) status = NNEFC_IMAGE_UNSUPPORTED;
    if (status == NNEFC_IMAGE_READ && !nnefc_jpeg_pixels(jpeg, image)) status = NNEFC_IMAGE_BROKEN;
    for (size_t i = 0; i < NNEFC_JPEG_PARTS; i++) free(jpeg->parts[i].coefficients), free(jpeg->parts[i].samples);
    free(jpeg);
    return status;
}

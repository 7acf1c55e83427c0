/* What the parts of the JPEG decoder share. */
#ifndef NNEFC_JPEG_H
#define NNEFC_JPEG_H

#include "images/images.h"

enum { NNEFC_JPEG_PARTS = 4, NNEFC_BLOCK = 64, NNEFC_CODE_BITS = 16 };

/* A Huffman code: of each length the largest code and the position of the first symbol less the first code; short codes in a table. */
typedef struct nnefc_huffman {
    int32_t largest[NNEFC_CODE_BITS + 1], shift[NNEFC_CODE_BITS + 1]; /* largest is -1 where there is none */
    uint8_t symbols[256];
    uint8_t fast_size[256], fast_symbol[256]; /* by the next eight bits; size 0 where the code is longer */
    bool exists;
} nnefc_huffman;

/* One component: luminance, or a part of the colour. */
typedef struct nnefc_jpeg_part {
    uint32_t id, across, down, table;   /* its samples for the smallest ones of all; its quantization */
    uint32_t width, height;             /* in samples */
    uint32_t columns, rows;             /* in blocks, as many as whole groups of blocks have */
    int16_t *coefficients;              /* [rows, columns, 64] */
    uint8_t *samples;                   /* [8 rows, 8 columns] */
} nnefc_jpeg_part;

typedef struct nnefc_jpeg {
    nnefc_bytes file;
    size_t at;
    uint32_t width, height, part_count, max_across, max_down, restart;
    bool is_progressive, has_adobe;
    uint32_t scans; /* that have been read */
    uint32_t adobe_transform;
    nnefc_jpeg_part parts[NNEFC_JPEG_PARTS];
    uint16_t quantization[4][NNEFC_BLOCK];
    nnefc_huffman codes[2][4]; /* of first coefficients, and of the others */
} nnefc_jpeg;

/* The index of a coefficient in its block, by its number in the file. */
extern const uint8_t nnefc_jpeg_order[NNEFC_BLOCK];

bool nnefc_huffman_read(nnefc_huffman *made, const uint8_t counts[NNEFC_CODE_BITS], nnefc_bytes symbols);

/* Reads the coefficients of a scan, whose header begins at `jpeg->at`, and leaves `at` behind them. */
bool nnefc_jpeg_scan(nnefc_jpeg *jpeg);

/* Turns coefficients into pixels. */
bool nnefc_jpeg_pixels(nnefc_jpeg *jpeg, nnefc_image *image);

#endif

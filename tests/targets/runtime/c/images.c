/* The decoders on files that are cut off and changed at random: `images REPEATS FILE...`, to be run under sanitizers. With 0 iterations
 * the files are such as are refused, however much memory there is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "images/images.h"
#include "text/text.h"

int32_t nnefc_image_decode(const uint8_t *file, int64_t *found, int64_t size, int64_t form);
int32_t nnefc_image_pixels(const int64_t *found, uint8_t *pixels, int64_t size);

static int failed;
static uint64_t max_bytes = 1 << 26;
static void *last;

int32_t nnefc_run_failed(void) { return failed; }

int32_t nnefc_kernel_error(const char *text) {
    (void)text;
    failed = 1;
    return -1;
}

void *nnefc_text_allocate(uint64_t bytes) {
    free(last);
    last = bytes <= max_bytes ? malloc(bytes) : NULL;
    if (last == NULL) failed = 1;
    return last;
}

static uint32_t random_number(uint32_t below) {
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(state >> 33) % below;
}

/* Decodes a copy of exactly as many bytes, so that one behind them is found; returns whether there are pixels. */
static int decode(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size);
    int64_t found[3], form = random_number(3);
    memcpy(copy, data, size);
    failed = 0;
    nnefc_image_decode(copy, found, (int64_t)size, form);
    size_t bytes = (size_t)(found[0] * found[1]) * (form == 2 ? 1 : 3);
    uint8_t *pixels = malloc(bytes);
    nnefc_image_pixels(found, pixels, (int64_t)bytes);
    unsigned sum = 0;
    for (size_t i = 0; i < bytes; i++) sum += pixels[i]; /* all of them are written */
    free(pixels);
    free(copy);
    return bytes > 0 && sum != 1;
}

int main(int count, char **arguments) {
    int iterations = atoi(arguments[1]), decoded = 0;
    if (iterations == 0) max_bytes = 1 << 30;
    for (int number = 2; number < count; number++) {
        uint8_t original[1 << 14], changed[sizeof original];
        FILE *in = fopen(arguments[number], "rb");
        if (in == NULL) return 2;
        size_t size = fread(original, 1, sizeof original, in);
        fclose(in);
        if (decode(original, size) != (iterations > 0)) return 3;
        for (int round = 0; round < iterations; round++) {
            size_t kept = random_number(4) == 0 ? random_number((uint32_t)size + 1) : size;
            memcpy(changed, original, size);
            for (uint32_t i = random_number(6); i > 0; i--) {
                static const uint8_t some[] = {0, 1, 0x7F, 0x80, 0xFF, 0xD0, 0xDA, 0xC4};
                uint32_t where = random_number(2) ? random_number((uint32_t)size) : random_number(size < 64 ? (uint32_t)size : 64);
                changed[where] = random_number(2) ? some[random_number(sizeof some)] : (uint8_t)random_number(256);
            }
            decoded += decode(changed, kept);
        }
    }
    free(last);
    printf("%s\n", decoded > 0 || iterations == 0 ? "ok" : "nothing was decoded");
    return 0;
}

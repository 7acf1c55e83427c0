/* Decodes an image file in a tensor to pixels in the session's memory, then to a tensor of their size; called by kernels. */
#include <string.h>

#include "images/images.h"
#include "text/text.h"

enum { RGB, BGR, GRAY };

bool nnefc_image_begin(nnefc_image *image, uint32_t width, uint32_t height) {
    if (!nnefc_image_fits(width, height, 24)) return false;
    image->width = width, image->height = height;
    image->rgb = nnefc_text_allocate((uint64_t)width * height * 3);
    return image->rgb != NULL;
}

static bool begins(nnefc_bytes file, size_t at, const char *text, size_t size) {
    return at + size <= file.size && memcmp(file.data + at, text, size) == 0;
}

static nnefc_image_status read_any(nnefc_bytes file, nnefc_image *image) {
    if (begins(file, 0, "\xFF\xD8\xFF", 3)) return nnefc_read_jpeg(file, image);
    if (begins(file, 0, "\x89PNG\r\n\x1A\n", 8)) return nnefc_read_png(file, image);
    if (begins(file, 0, "BM", 2)) return nnefc_read_bmp(file, image);
    if (begins(file, 0, "II*\0", 4) || begins(file, 0, "MM\0*", 4)) return nnefc_read_tiff(file, image);
    if (file.size > 2 && file.data[0] == 'P' && file.data[1] >= '1' && file.data[1] <= '6')
        return nnefc_read_pnm(file, image);
    if (begins(file, 0, "RIFF", 4) && begins(file, 8, "WEBP", 4)) return NNEFC_IMAGE_UNSUPPORTED;
    if (begins(file, 4, "jP  \r\n\x87\n", 8) || begins(file, 0, "\xFF\x4F\xFF\x51", 4)) return NNEFC_IMAGE_UNSUPPORTED;
    return NNEFC_IMAGE_BROKEN;
}

/* Brings the pixels into another form in place: what is written is never ahead of what is read. */
static void convert(nnefc_image *image, int64_t form) {
    uint8_t *from = image->rgb, *to = from;
    for (size_t i = (size_t)image->width * image->height; i > 0 && form != RGB; i--, from += 3) {
        uint8_t red = from[0], green = from[1], blue = from[2];
        if (form == GRAY)
            *to++ = (uint8_t)((19595u * red + 38470u * green + 7471u * blue + 32768u) >> 16); /* ITU-R BT.601 */
        else
            to[0] = blue, to[1] = green, to[2] = red, to += 3;
    }
}

/* The height, the width and the address of the pixels of a file; no pixels if it cannot be read. */
int32_t nnefc_image_decode(const uint8_t *file, int64_t *found, int64_t size, int64_t form);

int32_t nnefc_image_decode(const uint8_t *file, int64_t *found, int64_t size, int64_t form) {
    found[0] = found[1] = found[2] = 0;
    if (nnefc_run_failed()) return 0;
    nnefc_bytes bytes = {file, (size_t)size};
    nnefc_image image = {0, 0, NULL};
    nnefc_image_status status = read_any(bytes, &image);
    if (status == NNEFC_IMAGE_UNSUPPORTED)
        return nnefc_kernel_error("an image is of a kind that is not decoded: JPEG without arithmetic coding, PNG, BMP, "
                                  "PNM and TIFF in strips are");
    if (status != NNEFC_IMAGE_READ || nnefc_run_failed()) return 0;
    convert(&image, form);
    found[0] = image.height, found[1] = image.width, found[2] = (int64_t)(uintptr_t)image.rgb;
    return 0;
}

/* Copies the pixels that nnefc_image_decode found. */
int32_t nnefc_image_pixels(const int64_t *found, uint8_t *pixels, int64_t size);

int32_t nnefc_image_pixels(const int64_t *found, uint8_t *pixels, int64_t size) {
    if (size > 0 && found[2] != 0 && !nnefc_run_failed()) memcpy(pixels, (const void *)(uintptr_t)found[2], (size_t)size);
    return 0;
}

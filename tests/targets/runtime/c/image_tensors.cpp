// nnefc_image.hpp as functions of C, for the tests.
#include "nnefc_image.hpp"

namespace {

struct Request { // what the test writes
    std::int32_t width, height, pixels, yuv;
    std::int32_t crop[4], fit, resampling, color, layout, type; // 0 float, 1 float16, 2 int8, 3 uint8
    std::int32_t columns, rows;
    std::int64_t stride, chroma_stride;
    float mean[3], scale[3], padding[3];
    double placement[6];
};

std::array<float, 3> three(const float *values) { return {values[0], values[1], values[2]}; }

} // namespace

extern "C" std::int32_t convert(Request *request, const std::uint8_t *data, const std::uint8_t *chroma, void *tensor) {
    static nnefc::ImageConverter converter; // for all images
    nnefc::Image image(data, request->width, request->height, static_cast<nnefc::Pixels>(request->pixels),
                       static_cast<std::ptrdiff_t>(request->stride));
    image.chroma = chroma;
    image.chroma_stride = static_cast<std::ptrdiff_t>(request->chroma_stride);
    nnefc::ImageOptions options;
    options.crop = {request->crop[0], request->crop[1], request->crop[2], request->crop[3]};
    options.fit = static_cast<nnefc::Fit>(request->fit);
    options.resampling = static_cast<nnefc::Resampling>(request->resampling);
    options.color = static_cast<nnefc::Color>(request->color);
    options.layout = static_cast<nnefc::Layout>(request->layout);
    options.yuv = static_cast<nnefc::Yuv>(request->yuv);
    options.mean = three(request->mean);
    options.scale = three(request->scale);
    options.padding = three(request->padding);
    const int columns = request->columns, rows = request->rows;
    std::optional<nnefc::Placement> placed;
    if (request->type == 0) placed = converter.convert(image, static_cast<float *>(tensor), columns, rows, options);
    if (request->type == 1) placed = converter.convert(image, static_cast<std::uint16_t *>(tensor), columns, rows, options);
    if (request->type == 2) placed = converter.convert(image, static_cast<std::int8_t *>(tensor), columns, rows, options);
    if (request->type == 3) placed = nnefc::to_tensor(image, static_cast<std::uint8_t *>(tensor), columns, rows, options);
    if (!placed) return 0;
    const double found[] = {placed->scale_x,      placed->scale_y,      placed->left,
                            placed->top, placed->image_x(0), placed->image_y(0)};
    std::copy(found, found + 6, request->placement);
    return 1;
}

extern "C" void to_float16(const float *values, std::uint16_t *made, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i++) made[i] = nnefc::to_float16(values[i]);
}

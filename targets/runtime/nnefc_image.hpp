// nnefc_image.hpp - images as inputs of a network in C++17: pixels of a camera, a decoder or a file to a tensor, in one pass.
//
//     nnefc::Image frame(data, 1280, 720, nnefc::Pixels::nv12);
//     nnefc::ImageOptions options;
//     options.fit = nnefc::Fit::letterbox;                               // keeps the aspect ratio
//     options.padding = {114, 114, 114};
//     options.scale = {1 / 255.0f, 1 / 255.0f, 1 / 255.0f};
//     std::vector<float> tensor(3 * 640 * 640);
//     std::optional<nnefc::Placement> placed = nnefc::to_tensor(frame, tensor.data(), 640, 640, options);
//     session.run({tensor}, {boxes});
//     float x = placed->image_x(boxes[0]);                               // where that is in the frame
//
// An element of the tensor is (pixel - mean) * scale of its channel, with pixels from 0 to 255 that are not rounded between resizing and
// that. Nothing throws: what cannot be is answered by an empty optional. The header needs nothing but the standard library, no exceptions
// and no run-time type information.
#ifndef NNEFC_IMAGE_HPP
#define NNEFC_IMAGE_HPP

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace nnefc {

// How the bytes of an image follow each other. nv12 and nv21 have a plane of luma and one of chroma of half the width and height, whose
// bytes are U V and V U; yuyv has two pixels in four bytes.
enum class Pixels { rgb, bgr, rgba, bgra, gray, nv12, nv21, yuyv };

// How YUV becomes RGB: the matrix of BT.601 or BT.709; luma is from 16 to 235, or from 0 to 255 (full), as in JPEG files and with most of
// Android's cameras.
enum class Yuv { bt601, bt601_full, bt709, bt709_full };

// An image in memory of the caller's; sizes are in pixels, strides in bytes.
struct Image {
    const std::uint8_t *data;
    int width, height;
    Pixels pixels;
    std::ptrdiff_t stride;                // from a row to the next; negative where the lowest one comes first and `data` is the top one
    const std::uint8_t *chroma = nullptr; // of nv12 and nv21; null: right behind the luma
    std::ptrdiff_t chroma_stride = 0;     // 0: that of the luma, or one byte more if that is odd

    // A stride of 0 stands for rows without gaps.
    Image(const std::uint8_t *bytes, int columns, int rows, Pixels form = Pixels::rgb, std::ptrdiff_t row_stride = 0) noexcept
        : data(bytes), width(columns), height(rows), pixels(form), stride(row_stride != 0 ? row_stride : row_bytes()) {}

    // The bytes of a row without a gap, of luma where there is another plane.
    std::ptrdiff_t row_bytes() const noexcept {
        const std::ptrdiff_t columns = width;
        switch (pixels) {
            case Pixels::rgb: case Pixels::bgr: return 3 * columns;
            case Pixels::rgba: case Pixels::bgra: return 4 * columns;
            case Pixels::yuyv: return (columns + 1) / 2 * 4;
            default: return columns;
        }
    }
};

// A part of an image in pixels.
struct Box {
    int x = 0, y = 0, width = 0, height = 0;
};

// What fills a tensor whose aspect ratio is another one than the image's.
enum class Fit {
    stretch,            // the image
    letterbox,          // the image in the middle, and padding at two sides
    letterbox_top_left, // the image at the upper left, and padding below or at the right
    cover               // the middle of the image
};

// Bilinear: between the centers of four pixels, as OpenCV's INTER_LINEAR and PyTorch's interpolate without antialiasing. Area: the mean
// of what a pixel of the tensor covers, as OpenCV's INTER_AREA, for images that become much smaller; bilinear along an axis that becomes
// larger. Nearest: the pixel that has the center.
enum class Resampling { bilinear, area, nearest };

enum class Color { rgb, bgr, gray };
enum class Layout { chw, hwc };

struct ImageOptions {
    Box crop = {}; // the part that is taken; without a width the whole image
    Fit fit = Fit::stretch;
    Resampling resampling = Resampling::bilinear;
    Color color = Color::rgb; // of the tensor, which has 3 channels, or 1 of gray
    Layout layout = Layout::chw;
    std::array<float, 3> mean = {0, 0, 0}, scale = {1, 1, 1}; // by the tensor's channels
    std::array<float, 3> padding = {0, 0, 0};                 // a pixel, likewise, before `mean` and `scale`
    Yuv yuv = Yuv::bt601;
};

// Where an image came to lie in a tensor: a pixel's x there is left + (x - crop x) * scale_x.
struct Placement {
    double scale_x, scale_y; // pixels of the tensor for one of the image
    double left, top;        // of the image's part in the tensor; negative where it covers that
    int crop_x, crop_y;

    // Positions in the image of positions in the tensor, such as corners of boxes that a network finds.
    double image_x(double x) const noexcept { return (x - left) / scale_x + crop_x; }
    double image_y(double y) const noexcept { return (y - top) / scale_y + crop_y; }
};

// The bits of the IEEE 754 binary16 that is nearest to a float.
inline std::uint16_t to_float16(float value) noexcept {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u); // NaN
    if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u); // rounds to infinity
    if (magnitude < 0x38800000u) { // subnormal: a multiple of 2^-24, rounded by an addition
        float small;
        std::memcpy(&small, &magnitude, sizeof small);
        small += 0.5f; // whose last bit is 2^-24
        std::memcpy(&bits, &small, sizeof bits);
        return static_cast<std::uint16_t>(sign | (bits - 0x3f000000u));
    }
    const std::uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
    return static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

// Converts images; keeps what it allocates for the next one. One thread at a time may use it.
class ImageConverter {
public:
    // Writes an image to a tensor of 1 or 3 channels, `height` rows and `width` columns. T is float; std::uint16_t for the bits of float16;
    // or std::int8_t or std::uint8_t, which are rounded to the nearest and saturate. Empty if the image, a size or the crop cannot be.
    template <class T>
    std::optional<Placement> convert(const Image &image, T *tensor, int width, int height, const ImageOptions &options = {}) {
        static_assert(std::is_same_v<T, float> || std::is_same_v<T, std::uint16_t> || std::is_same_v<T, std::int8_t> ||
                          std::is_same_v<T, std::uint8_t>,
                      "float, float16 as std::uint16_t, std::int8_t or std::uint8_t");
        const Box crop = options.crop.width == 0 && options.crop.height == 0 ? Box{0, 0, image.width, image.height} : options.crop;
        if (tensor == nullptr || width <= 0 || height <= 0 || !is_valid(image) || !is_inside(crop, image)) return std::nullopt;
        const Area area = place(crop, width, height, options.fit);
        columns_.set(0, crop.width, area.image_x, area.image_width, area.width, options.resampling);
        rows_.set(crop.y, crop.height, area.image_y, area.image_height, area.height, options.resampling);
        prepare(image, crop, area.width, options);
        fill(tensor, width, height, area, options);
        for (int y = 0; y < area.height; y++) {
            resample(image, crop, y);
            write(tensor, width, height, area, y, options);
        }
        const double scale_x = area.width / area.image_width, scale_y = area.height / area.image_height;
        return Placement{scale_x, scale_y, area.left - area.image_x * scale_x, area.top - area.image_y * scale_y, crop.x, crop.y};
    }

private:
    // Where a part of the tensor gets which part of the crop.
    struct Area {
        int left, top, width, height;                    // in the tensor
        double image_x, image_y, image_width, image_height; // in the crop
    };

    // What a row or a column of the tensor is made of: the pixels from `first` on, each with a weight.
    struct Taps {
        std::vector<int> first, count;
        std::vector<float> weights; // `max_taps` for each
        int max_taps = 1;

        // For so many pixels of the tensor, over `extent` pixels from `start` on, of a part of the image that has `size` of them and begins
        // at `origin`.
        void set(int origin, int size, double start, double extent, int pixels, Resampling resampling) {
            const double step = extent / pixels;
            const bool averages = resampling == Resampling::area && step > 1;
            max_taps = averages ? static_cast<int>(std::ceil(step)) + 1 : 2;
            first.assign(static_cast<std::size_t>(pixels), 0);
            count.assign(static_cast<std::size_t>(pixels), 1);
            weights.assign(static_cast<std::size_t>(pixels) * static_cast<std::size_t>(max_taps), 0.0f);
            for (int i = 0; i < pixels; i++) {
                const std::size_t at = static_cast<std::size_t>(i);
                float *own = weights.data() + at * static_cast<std::size_t>(max_taps);
                const double begin = start + i * step;
                if (averages) set_mean(begin, begin + step, size, first[at], count[at], own);
                else if (resampling == Resampling::nearest) set_nearest(begin + step / 2, size, first[at], own);
                else set_linear(begin + step / 2 - 0.5, size, first[at], count[at], own);
                first[at] += origin;
            }
        }

    private:
        static void set_nearest(double center, int size, int &first, float *weights) {
            first = std::clamp(static_cast<int>(std::floor(center)), 0, size - 1);
            weights[0] = 1;
        }

        static void set_linear(double position, int size, int &first, int &count, float *weights) {
            const double inside = std::clamp(position, 0.0, size - 1.0);
            first = std::min(static_cast<int>(inside), size - 1);
            const double weight = inside - first;
            count = weight > 0 ? 2 : 1;
            weights[0] = static_cast<float>(1 - weight);
            weights[1] = static_cast<float>(weight);
        }

        static void set_mean(double begin, double end, int size, int &first, int &count, float *weights) {
            begin = std::clamp(begin, 0.0, size - 1.0);
            end = std::clamp(end, begin, static_cast<double>(size));
            first = static_cast<int>(begin);
            count = std::max(static_cast<int>(std::ceil(end)) - first, 1);
            for (int i = 0; i < count; i++) {
                const double covered = std::min<double>(end, first + i + 1) - std::max<double>(begin, first + i);
                weights[i] = end > begin ? static_cast<float>(covered / (end - begin)) : 1.0f / static_cast<float>(count);
            }
        }
    };

    static bool is_valid(const Image &image) {
        if (image.data == nullptr || image.width <= 0 || image.height <= 0 || image.width > (1 << 26)) return false;
        if (std::abs(image.stride) < image.row_bytes()) return false;
        if (image.pixels != Pixels::nv12 && image.pixels != Pixels::nv21) return true;
        if (image.chroma_stride == 0) return image.stride > 0;
        return std::abs(image.chroma_stride) >= (image.width + 1) / 2 * 2 && (image.chroma != nullptr || image.stride > 0);
    }

    static bool is_inside(const Box &box, const Image &image) {
        return box.width > 0 && box.height > 0 && box.x >= 0 && box.y >= 0 && box.x <= image.width - box.width &&
               box.y <= image.height - box.height;
    }

    static Area place(const Box &crop, int width, int height, Fit fit) {
        Area area{0, 0, width, height, 0, 0, static_cast<double>(crop.width), static_cast<double>(crop.height)};
        const double across = static_cast<double>(width) / crop.width, down = static_cast<double>(height) / crop.height;
        if (fit == Fit::letterbox || fit == Fit::letterbox_top_left) {
            const double scale = std::min(across, down);
            area.width = std::clamp(static_cast<int>(std::lround(crop.width * scale)), 1, width);
            area.height = std::clamp(static_cast<int>(std::lround(crop.height * scale)), 1, height);
            if (fit == Fit::letterbox) {
                area.left = (width - area.width) / 2;
                area.top = (height - area.height) / 2;
            }
        } else if (fit == Fit::cover) {
            const double scale = std::max(across, down);
            area.image_width = std::min(width / scale, area.image_width);
            area.image_height = std::min(height / scale, area.image_height);
            area.image_x = (crop.width - area.image_width) / 2;
            area.image_y = (crop.height - area.image_height) / 2;
        }
        return area;
    }

    void prepare(const Image &image, const Box &crop, int width, const ImageOptions &options) {
        source_channels_ = image.pixels == Pixels::gray ? 1 : 3;
        width_ = static_cast<std::size_t>(width);
        row_size_ = width_ * static_cast<std::size_t>(source_channels_);
        kept_.assign(static_cast<std::size_t>(rows_.max_taps), -1);
        kept_rows_.resize(row_size_ * kept_.size());
        sums_.resize(row_size_);
        pixels_.resize(3 * static_cast<std::size_t>(crop.width));
        // numerators of 65536: of luma, V for red, U and V for green, U for blue
        static constexpr std::int32_t factors[4][5] = {{76309, 104597, -25675, -53279, 132201},
                                                       {65536, 91881, -22554, -46802, 116130},
                                                       {76309, 117489, -13975, -34925, 138438},
                                                       {65536, 103206, -12276, -30679, 121609}};
        yuv_ = factors[static_cast<int>(options.yuv)];
        black_ = options.yuv == Yuv::bt601 || options.yuv == Yuv::bt709 ? 16 : 0;
    }

    static std::uint8_t saturated(std::int32_t value) { return static_cast<std::uint8_t>(std::clamp(value, 0, 255)); }

    void set_pixel(std::uint8_t *rgb, std::int32_t luma, std::int32_t u, std::int32_t v) const {
        const std::int32_t y = yuv_[0] * (luma - black_) + (1 << 15);
        rgb[0] = saturated((y + yuv_[1] * v) >> 16);
        rgb[1] = saturated((y + yuv_[2] * u + yuv_[3] * v) >> 16);
        rgb[2] = saturated((y + yuv_[4] * u) >> 16);
    }

    // The pixels of a row from the crop's first column on; `step` bytes for each, with the channels red, green and blue at `channels`.
    const std::uint8_t *row(const Image &image, const Box &crop, int y, int &step, std::array<int, 3> &channels) {
        const std::uint8_t *begin = image.data + y * image.stride;
        step = image.pixels == Pixels::gray ? 1 : image.pixels == Pixels::rgba || image.pixels == Pixels::bgra ? 4 : 3;
        channels = image.pixels == Pixels::bgr || image.pixels == Pixels::bgra ? std::array<int, 3>{2, 1, 0} : std::array<int, 3>{0, 1, 2};
        if (image.pixels == Pixels::yuyv) {
            for (int x = crop.x; x < crop.x + crop.width; x++) {
                const std::uint8_t *pair = begin + x / 2 * 4;
                set_pixel(pixels_.data() + 3 * (x - crop.x), pair[x % 2 * 2], pair[1] - 128, pair[3] - 128);
            }
            return pixels_.data();
        }
        if (image.pixels != Pixels::nv12 && image.pixels != Pixels::nv21) return begin + static_cast<std::ptrdiff_t>(crop.x) * step;
        const std::uint8_t *plane = image.chroma != nullptr ? image.chroma : image.data + image.height * image.stride;
        const std::uint8_t *chroma = plane + y / 2 * (image.chroma_stride != 0 ? image.chroma_stride : image.stride + image.stride % 2);
        const int u = image.pixels == Pixels::nv12 ? 0 : 1;
        for (int x = crop.x; x < crop.x + crop.width; x++) {
            const std::uint8_t *pair = chroma + x / 2 * 2;
            set_pixel(pixels_.data() + 3 * (x - crop.x), begin[x], pair[u] - 128, pair[1 - u] - 128);
        }
        return pixels_.data();
    }

    // A row of the image with the columns of the tensor, channel by channel. Rows that the next rows of the tensor need as well are kept.
    const float *resampled_row(const Image &image, const Box &crop, int y) {
        const std::size_t slot = static_cast<std::size_t>(y) % kept_.size();
        float *made = kept_rows_.data() + slot * row_size_;
        if (kept_[slot] == y) return made;
        kept_[slot] = y;
        int step = 0;
        std::array<int, 3> channels{};
        const std::uint8_t *pixels = row(image, crop, y, step, channels);
        for (int c = 0; c < source_channels_; c++) {
            const std::uint8_t *first = pixels + channels[static_cast<std::size_t>(c)];
            float *channel = made + static_cast<std::size_t>(c) * width_;
            for (std::size_t x = 0; x < width_; x++) {
                const std::uint8_t *tap = first + static_cast<std::ptrdiff_t>(columns_.first[x]) * step;
                const float *weights = columns_.weights.data() + x * static_cast<std::size_t>(columns_.max_taps);
                float sum = weights[0] * static_cast<float>(*tap);
                for (int i = 1; i < columns_.count[x]; i++) sum += weights[i] * static_cast<float>(tap[i * step]);
                channel[x] = sum;
            }
        }
        return made;
    }

    // A row of the tensor in pixels, to sums_.
    void resample(const Image &image, const Box &crop, int y) {
        const std::size_t at = static_cast<std::size_t>(y);
        const float *weights = rows_.weights.data() + at * static_cast<std::size_t>(rows_.max_taps);
        for (int i = 0; i < rows_.count[at]; i++) {
            const float *added = resampled_row(image, crop, rows_.first[at] + i);
            const float weight = weights[i];
            if (i == 0)
                for (std::size_t x = 0; x < row_size_; x++) sums_[x] = weight * added[x];
            else
                for (std::size_t x = 0; x < row_size_; x++) sums_[x] += weight * added[x];
        }
    }

    template <class T> static T element(float value) {
        if constexpr (std::is_same_v<T, float>) return value;
        else if constexpr (std::is_same_v<T, std::uint16_t>) return to_float16(value);
        else {
            constexpr float lowest = std::is_same_v<T, std::int8_t> ? -128.0f : 0.0f;
            return static_cast<T>(std::lrint(std::clamp(value, lowest, lowest + 255)));
        }
    }

    // Where a channel of a row begins in the tensor, and how far its elements are apart.
    template <class T> struct Line {
        T *begin;
        std::ptrdiff_t step;
    };

    template <class T> static Line<T> line(T *tensor, int width, int height, int channel, int y, const ImageOptions &options) {
        const std::ptrdiff_t channels = options.color == Color::gray ? 1 : 3, columns = width;
        if (options.layout == Layout::hwc) return {tensor + y * columns * channels + channel, channels};
        return {tensor + (static_cast<std::ptrdiff_t>(channel) * height + y) * columns, 1};
    }

    // Fills rows and columns that the image leaves free.
    template <class T> static void fill(T *tensor, int width, int height, const Area &area, const ImageOptions &options) {
        const int channels = options.color == Color::gray ? 1 : 3;
        for (int c = 0; c < channels; c++) {
            const std::size_t at = static_cast<std::size_t>(c);
            const T value = element<T>((options.padding[at] - options.mean[at]) * options.scale[at]);
            for (int y = 0; y < height; y++) {
                const Line<T> own = line(tensor, width, height, c, y, options);
                const bool is_free = y < area.top || y >= area.top + area.height;
                for (int x = 0; x < (is_free ? width : area.left); x++) own.begin[x * own.step] = value;
                for (int x = is_free ? width : area.left + area.width; x < width; x++) own.begin[x * own.step] = value;
            }
        }
    }

    // Writes sums_ to a row of the image's area.
    template <class T> void write(T *tensor, int width, int height, const Area &area, int y, const ImageOptions &options) {
        const std::size_t plane = source_channels_ == 1 ? 0 : width_;
        const float *red = sums_.data(), *green = red + plane, *blue = green + plane;
        const float *channels[] = {red, green, blue};
        if (options.color == Color::gray && source_channels_ == 3) {
            for (std::size_t x = 0; x < width_; x++) sums_[x] = 0.299f * red[x] + 0.587f * green[x] + 0.114f * blue[x];
        } else if (options.color == Color::bgr) std::swap(channels[0], channels[2]);
        for (int c = 0; c < (options.color == Color::gray ? 1 : 3); c++) {
            const std::size_t at = static_cast<std::size_t>(c);
            const Line<T> own = line(tensor, width, height, c, area.top + y, options);
            const float mean = options.mean[at], scale = options.scale[at];
            T *begin = own.begin + area.left * own.step;
            const float *channel = channels[c];
            if (own.step == 1)
                for (std::size_t x = 0; x < width_; x++) begin[x] = element<T>((channel[x] - mean) * scale);
            else
                for (std::size_t x = 0; x < width_; x++)
                    begin[static_cast<std::ptrdiff_t>(x) * own.step] = element<T>((channel[x] - mean) * scale);
        }
    }

    Taps columns_, rows_;
    int source_channels_ = 3;
    std::size_t width_ = 0, row_size_ = 0; // of the image's area in the tensor; all channels of a row
    std::vector<int> kept_;                // the rows of the image in kept_rows_; -1 for none
    std::vector<float> kept_rows_, sums_;
    std::vector<std::uint8_t> pixels_; // a row of YUV as RGB
    const std::int32_t *yuv_ = nullptr;
    std::int32_t black_ = 0;
};

// The same once, see ImageConverter::convert.
template <class T>
std::optional<Placement> to_tensor(const Image &image, T *tensor, int width, int height, const ImageOptions &options = {}) {
    return ImageConverter().convert(image, tensor, width, height, options);
}

} // namespace nnefc

#endif

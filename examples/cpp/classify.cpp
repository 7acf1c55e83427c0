// Opens a compiled network and prints the largest elements of its output.
//
//     ./classify model.so                  the input is zeros
//     ./classify model.so image.f32        the input from a file: float32 as they lie in memory, nothing else
//     ./classify model.so image.f32 10     the ten largest instead of five
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>

#include "nnefc.hpp"

// The elements of a file that must have exactly so many.
static std::vector<float> read_file(const char *path, std::size_t count) {
    std::vector<float> elements(count);
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(std::string(path) + " cannot be read");
    const auto bytes = static_cast<std::streamsize>(count * sizeof(float));
    if (!file.read(reinterpret_cast<char *>(elements.data()), bytes) || file.peek() != EOF)
        throw std::runtime_error(std::string(path) + " does not have the " + std::to_string(bytes) + " bytes of the input");
    return elements;
}

static void print_largest(const std::vector<float> &values, std::size_t wanted) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    wanted = std::min(wanted, order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(wanted), order.end(),
                      [&](std::size_t a, std::size_t b) { return values[a] != values[b] ? values[a] > values[b] : a < b; });
    for (std::size_t i = 0; i < wanted; i++) std::printf("  %6zu  %g\n", order[i], static_cast<double>(values[order[i]]));
}

int main(int argc, char **argv) {
    const int wanted = argc > 3 ? std::atoi(argv[3]) : 5;
    if (argc < 2 || argc > 4 || wanted < 1) {
        std::fprintf(stderr, "usage: %s LIBRARY [FILE [COUNT]]\n", argv[0]);
        return 2;
    }
    try {
        nnefc::Session session = nnefc::Library(argv[1]).session();
        const nnefc_description &network = session.description();
        std::printf("%s, compiled for %s by %s\n", network.model, network.target, network.compiler);
        if (session.inputs().size() != 1) throw std::runtime_error("this program serves networks with one input");
        const std::size_t count = session.inputs()[0].elements();
        const std::vector<float> image = argc > 2 ? read_file(argv[2], count) : std::vector<float>(count);
        const std::vector<float> result = session.run<float>({image});
        std::printf("%s:\n", session.outputs()[0].name.c_str());
        print_largest(result, static_cast<std::size_t>(wanted));
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}

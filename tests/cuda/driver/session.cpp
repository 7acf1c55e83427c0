// Uses what nnefc.hpp has for GPUs: session CUDA_LIBRARY LIBRARY_FOR_PROCESSORS. Prints "ok".
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "nnefc.hpp"

#define CHECK(condition)                                                         \
    do {                                                                         \
        if (!(condition)) {                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                        \
        }                                                                        \
    } while (0)

template <class Function> static Function driver(const char *name) {
    static void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(library != nullptr);
    Function function = reinterpret_cast<Function>(dlsym(library, name));
    CHECK(function != nullptr);
    return function;
}

template <class T> static T *allocate(std::size_t count) {
    unsigned long long memory = 0;
    CHECK(driver<int (*)(unsigned long long *, std::size_t)>("cuMemAlloc_v2")(&memory, count * sizeof(T)) == 0);
    return reinterpret_cast<T *>(memory);
}

template <class T> static void release(T *memory) {
    CHECK(driver<int (*)(unsigned long long)>("cuMemFree_v2")(reinterpret_cast<unsigned long long>(memory)) == 0);
}

template <class Action> static std::string failure(nnefc_status status, Action action) {
    try {
        action();
    } catch (const nnefc::Error &error) {
        CHECK(error.status() == status);
        return error.what();
    }
    return "nothing was thrown";
}

static void runs_on_a_gpu(nnefc::Session session) {
    std::vector<float> x(1024, 1.0f), y(1024);
    std::array<std::int64_t, 1> count{};
    session.run({x}, {y, count});
    CHECK(count[0] == 6 && std::isfinite(y[1023]));
    float *on_device = allocate<float>(1024), *result = allocate<float>(1024);
    std::int64_t *number = allocate<std::int64_t>(1);
    session.run({x}, {{on_device, 1024}, count});
    CHECK(count[0] == 7);
    session.enqueue({{on_device, 1024}}, {{result, 1024}, {number, 1}});
    session.enqueue({{on_device, 1024}}, {{result, 1024}, {number, 1}}, reinterpret_cast<void *>(1));
    session.synchronize();
    session.run({x}, {y, count});
    CHECK(count[0] == 10);
    CHECK(failure(NNEFC_BAD_ARGUMENT, [&] { session.enqueue({x}, {y, count}); }) ==
          "bad argument: input \"x\" is in the host's memory: nnefc_enqueue takes the GPU's");
    session.reset();
    session.run({x}, {y, count});
    CHECK(count[0] == 6);
    release(on_device);
    release(result);
    release(number);
}

int main(int, char **arguments) {
    void *context = nullptr;
    CHECK(driver<int (*)(unsigned)>("cuInit")(0) == 0);
    CHECK(driver<int (*)(void **, int)>("cuDevicePrimaryCtxRetain")(&context, 0) == 0);
    CHECK(driver<int (*)(void *)>("cuCtxPushCurrent_v2")(context) == 0);
    nnefc::Library library(arguments[1]);
    CHECK(std::strcmp(library.description().device, "cuda") == 0);
    nnefc::Session first = library.session(), second = library.session();
    second = std::move(first);
    runs_on_a_gpu(std::move(second));
    nnefc::Options options;
    options.device = 1;
    CHECK(failure(NNEFC_NO_DEVICE, [&] { library.session(options); }) ==
          "no device: device is 1, but there are 1 GPUs, numbered from 0");
    nnefc::Session on_host = nnefc::Library(arguments[2]).session();
    CHECK(failure(NNEFC_BAD_ARGUMENT, [&] { on_host.synchronize(); }) == "the network does not run on a GPU");
    std::puts("ok");
}

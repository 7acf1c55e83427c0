// Uses nnefc.hpp without exceptions: without_exceptions SQUARES CONTROLLED, two shared libraries. Prints "ok".
#include <cstdio>
#include <string>

#include "nnefc.hpp"

#define CHECK(condition)                                                         \
    do {                                                                         \
        if (!(condition)) {                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                        \
        }                                                                        \
    } while (0)

#if defined(__cpp_exceptions) || defined(__cpp_rtti)
#error compiled with what the header is to do without
#endif

template <class T> static bool refused(const nnefc::Expected<T> &outcome, nnefc_status status, const char *text) {
    if (outcome.has_value()) return false;
    return outcome.error().status() == status && std::string(outcome.error().what()).find(text) != std::string::npos;
}

static void runs(nnefc::Session session) {
    const std::vector<float> x(3, 3.0f), forever(1, -1.0f), fails(2, -2.0f);
    std::vector<float> y(8);
    std::vector<double> doubles(3);
    CHECK(*session.run<float>({x}) == std::vector<float>(3, 9.0f));
    CHECK(session.run({x}, {y}) && y[2] == 9 && session.outputs()[0].elements() == 3);
    CHECK(session.reserve() && session.select({"y"}) && session.select() && session.time_kernels(false));
    CHECK(refused(session.run({doubles}, {y}), NNEFC_BAD_ARGUMENT, "input \"x\" is given as float64"));
    CHECK(refused(session.run<float>({}), NNEFC_BAD_ARGUMENT, "0 inputs are given"));
    CHECK(refused(session.run({fails}, {y}), NNEFC_KERNEL_ERROR, "failed with -1"));
    CHECK(refused(session.run({{x, {3, 1}}}, {y}), NNEFC_BAD_ARGUMENT, "given a shape of 2 sizes, but the network has 1"));
    CHECK(refused(session.select({"z"}), NNEFC_BAD_ARGUMENT, "no output \"z\""));
    CHECK(refused(session.run_named({{"z", x}}, {{"y", y}}), NNEFC_BAD_ARGUMENT, "no input \"z\""));
    CHECK(refused(session.synchronize(), NNEFC_BAD_ARGUMENT, "does not run on a GPU"));
    CHECK(session.set_time_limit(std::chrono::milliseconds(1)));
    CHECK(refused(session.run({forever}, {y}), NNEFC_TIMED_OUT, "timed out"));
    std::promise<nnefc::Expected<std::vector<nnefc::Tensor>>> done, failed;
    CHECK(session.run_async({x}, {y}, [&](nnefc::Expected<std::vector<nnefc::Tensor>> outputs) { done.set_value(std::move(outputs)); }));
    CHECK(done.get_future().get().value()[0].elements() == 3);
    CHECK(session.run_async({fails}, {y}, [&](nnefc::Expected<std::vector<nnefc::Tensor>> outputs) { failed.set_value(std::move(outputs)); }));
    CHECK(refused(failed.get_future().get(), NNEFC_KERNEL_ERROR, "failed with -1"));
    nnefc::Session moved = std::move(session);
    CHECK(refused(session.run({x}, {y}), NNEFC_BAD_ARGUMENT, "moved from") && moved.run({x}, {y}) && moved.reset());
}

static void pool_of_sessions(const nnefc::Library &library) {
    nnefc::Options options;
    options.shared_threads = *library.threads(2);
    const auto pool = nnefc::Pool::create(library, 2, options);
    std::vector<float> x(2, 5.0f), y(8), z(8), fails(2, -2.0f);
    auto first = (*pool)->submit({x}, {y}), second = (*pool)->submit({fails}, {z}), third = (*pool)->submit({}, {z});
    CHECK(first.get()->size() == 1 && y[1] == 25 && (*pool)->cancel());
    CHECK(refused(second.get(), NNEFC_KERNEL_ERROR, "") && refused(third.get(), NNEFC_BAD_ARGUMENT, "0 inputs"));
    CHECK((*pool)->run({x}, {z}) && (*(*pool)->run<float>({x}))[0] == 25);
    CHECK(refused(nnefc::Pool::create(library, 0), NNEFC_BAD_ARGUMENT, "at least one session"));
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    nnefc::Expected<nnefc::Library> library = nnefc::Library::load(argv[1]);
    CHECK(library && refused(nnefc::Library::load("none.so"), NNEFC_BAD_ARGUMENT, "none.so"));
    CHECK(refused(library->tokenizer(), NNEFC_BAD_ARGUMENT, "no tokenizer") && refused(library->chat(), NNEFC_BAD_ARGUMENT, "no chat template"));
    CHECK(refused(nnefc::Library::from_memory("", 0), NNEFC_BAD_ARGUMENT, ""));
    nnefc::Options options;
    options.threads = -1;
    CHECK(refused(library->session(options), NNEFC_BAD_ARGUMENT, "threads is -1, not a number from 0 to 1024"));
    runs(*library->session());
    pool_of_sessions(*library);
    CHECK(refused(nnefc::Pool::create(*nnefc::Library::load(argv[2]), 1), NNEFC_BAD_ARGUMENT, "a network with states"));
    CHECK(library->set_log([](nnefc_log_level, std::string_view) {}));
    std::puts("ok");
    return 0;
}

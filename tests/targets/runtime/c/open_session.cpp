// Uses nnefc.hpp with dynamic sizes: linked with the network of dynamic_network.c by the name `open_sample`, and given a shared
// library of it. Prints "ok".
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory_resource>
#include <thread>

#include "nnefc.hpp"
#include "open_sample.h"

#define CHECK(condition)                                                         \
    do {                                                                         \
        if (!(condition)) {                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                        \
        }                                                                        \
    } while (0)

template <class Action> static void refused(nnefc_status status, const char *text, Action action) {
    try {
        action();
    } catch (const nnefc::Error &error) {
        if (error.status() == status && std::string(error.what()).find(text) != std::string::npos) return;
        std::fprintf(stderr, "%d %s\n", error.status(), error.what());
        std::exit(1);
    }
    std::fprintf(stderr, "nothing instead of: %s\n", text);
    std::exit(1);
}

static void runs(nnefc::Session session) {
    const std::vector<nnefc::Dimension> dimensions = session.dimensions();
    CHECK(dimensions.size() == 2 && dimensions[1].name == "w" && dimensions[1].multiple == 4 && dimensions[1].most == 256);
    CHECK(session.inputs()[0].shape[1] == -2 && session.outputs()[0].elements() == 0);
    std::vector<float> y(2048);
    std::vector<double> sums(8);
    for (std::int64_t n : {3, 8, 1})
        for (std::int64_t w : {8, 256, 12}) {
            const std::vector<float> x(static_cast<std::size_t>(n * w), 2.0f), scale(static_cast<std::size_t>(w), 1.5f);
            session.run({{x, {n, w}}, scale}, {y, sums});
            CHECK((session.outputs()[0].shape == std::vector<std::int64_t>{n, w}));
            CHECK(session.outputs()[1].elements() == static_cast<std::size_t>(n));
            CHECK(y[0] == 3.0f && y[x.size() - 1] == 3.0f && sums[static_cast<std::size_t>(n - 1)] == 3.0 * static_cast<double>(w));
        }
    session.reserve({8, 64});
    session.reserve();

    const std::vector<float> x(16, 1.0f), scale(8, 1.0f);
    const auto run = [&](nnefc::Shape shape) { session.run({{x, std::move(shape)}, scale}, {y, sums}); };
    run({2, 8});
    refused(NNEFC_BAD_ARGUMENT, "input \"x\" has several dynamic sizes: give its shape", [&] { session.run({x, scale}, {y, sums}); });
    refused(NNEFC_BAD_ARGUMENT, "given a shape of 3 sizes, but the network has 2", [&] { run({1, 2, 8}); });
    refused(NNEFC_BAD_ARGUMENT, "input \"x\" has 64 bytes, but 32 by its shape", [&] { run({1, 8}); });
    refused(NNEFC_BAD_ARGUMENT, "dimension 0 of input \"x\" is 9, but the network takes 1 to 8", [&] { run({9, 8}); });
    refused(NNEFC_BAD_ARGUMENT, "1 sizes are given, but the network has 2 dynamic", [&] { session.reserve({1}); });
    refused(NNEFC_BAD_ARGUMENT, "a size is 3, but the network takes 8 to 256", [&] { session.reserve({1, 3}); });
    std::vector<double> few;
    refused(NNEFC_TOO_SMALL, "output \"sums\" has 16 bytes, but memory for 0", [&] { session.run({{x, {2, 8}}, scale}, {y, few}); });
    CHECK(session.outputs()[1].elements() == 2);
    refused(NNEFC_BAD_ARGUMENT, "output \"sums\" is given as float32", [&] { session.run({{x, {2, 8}}, scale}, {y, y}); });
    refused(NNEFC_BAD_ARGUMENT, "1 outputs are given, but the network has 2", [&] { session.run<float>({{x, {2, 8}}, scale}); });

    nnefc::Session moved = std::move(session);
    moved.run({{x, {2, 8}}, scale}, {y, sums});
    refused(NNEFC_BAD_ARGUMENT, "moved from", [&] { run({2, 8}); });
    refused(NNEFC_BAD_ARGUMENT, "moved from", [&] { session.reserve(); });
}

static void one_output(nnefc::Session session) { // which the session has memory for
    for (std::size_t n = 1; n <= 8; n++) {
        const std::vector<float> x(n, 3.0f);
        CHECK((session.run<float>({x}) == std::vector<float>(n, 9.0f)));
        CHECK(session.outputs()[0].elements() == n);
    }
}

// Runs of all kinds, from several threads at once, in a pool whose library is squares.so.
static void pool_of_sessions(const nnefc::Library &library) {
    nnefc::Pool pool(library, 3);
    std::vector<std::thread> callers;
    for (std::size_t caller = 0; caller < 6; caller++)
        callers.emplace_back([&pool, caller] {
            for (std::size_t n = 1; n <= 8; n++) {
                const std::vector<float> x(n, static_cast<float>(caller));
                std::vector<float> y(8), z(8);
                const auto squared = static_cast<float>(caller * caller);
                CHECK((pool.run<float>({x}) == std::vector<float>(n, squared)));
                std::future<std::vector<nnefc::Tensor>> done = pool.submit({x}, {y});
                std::promise<std::size_t> called;
                pool.submit({x}, {z}, [&called](std::vector<nnefc::Tensor> outputs, std::exception_ptr error) {
                    called.set_value(error == nullptr ? outputs[0].elements() : 0);
                });
                CHECK(done.get()[0].elements() == n && y[n - 1] == squared);
                CHECK(called.get_future().get() == n && z[n - 1] == squared);
            }
        });
    for (std::thread &caller : callers) caller.join();
    std::vector<float> fails(4, -2.0f), y(8), forever(1, -1.0f);
    std::future<std::vector<nnefc::Tensor>> failing = pool.submit({fails}, {y});
    refused(NNEFC_KERNEL_ERROR, "failed with -1", [&] { failing.get(); });
    std::future<std::vector<nnefc::Tensor>> ended = pool.submit({forever}, {y});
    while (ended.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) pool.cancel();
    refused(NNEFC_CANCELLED, "another thread has ended the run", [&] { ended.get(); });
    CHECK(pool.run<float>({std::vector<float>(2, 3.0f)})[1] == 9);
    refused(NNEFC_BAD_ARGUMENT, "at least one session", [&] { nnefc::Pool(library, 0); });
}

// Runs that begin the next one when they are over, and messages and times meanwhile.
static void by_itself(nnefc::Library library) {
    std::vector<std::string> messages;
    library.set_log([&](nnefc_log_level level, std::string_view message) { messages.push_back(std::to_string(level) + std::string(message)); },
                    NNEFC_LOG_INFO);
    nnefc::Session session = library.session();
    CHECK(messages.size() == 1 && messages[0].find("3a session of ") == 0);
    library.set_log(nullptr);
    session.time_kernels(true);
    std::vector<float> x(8, 3.0f), y(8);
    std::promise<void> done;
    std::size_t n = 1;
    nnefc::Callback next = [&](std::vector<nnefc::Tensor> outputs, std::exception_ptr error) {
        CHECK(error == nullptr && outputs[0].elements() == n && y[n - 1] == 9);
        if (n == 8) return done.set_value();
        n++;
        session.run_async({nnefc::Input(x.data(), n)}, {y}, next);
    };
    session.run_async({nnefc::Input(x.data(), n)}, {y}, next);
    done.get_future().get();
    CHECK(session.kernel_times().empty()); // for the network is not the compiler's
    refused(NNEFC_BAD_ARGUMENT, "0 inputs are given", [&] { session.run_async({}, {y}, next); });
    refused(NNEFC_BAD_ARGUMENT, "no output \"z\"", [&] { session.select({"z"}); });
    refused(NNEFC_BAD_ARGUMENT, "twice", [&] { session.select({"y", "y"}); });
    session.select({"y"});
    CHECK(session.run<float>({x})[7] == 9);
    std::promise<std::exception_ptr> failed;
    x[0] = -2;
    session.run_async({x}, {y}, [&](std::vector<nnefc::Tensor>, std::exception_ptr error) { failed.set_value(error); });
    refused(NNEFC_KERNEL_ERROR, "failed with -1", [&] { std::rethrow_exception(failed.get_future().get()); });
}

static void some_outputs(nnefc::Session session) { // of a, b and c, by name and in any order
    const std::vector<float> x = {1, 2, 3};
    std::vector<float> a(3), b(3), c(3);
    session.select({"c", "a"});
    session.run({x}, {c, a});
    CHECK(c[2] == 9 && a[2] == 4);
    refused(NNEFC_BAD_ARGUMENT, "3 outputs are given, but the selection has 2", [&] { session.run({x}, {a, b, c}); });
    session.run_named({{"x", x}}, {{"b", b}, {"a", a}, {"c", c}});
    CHECK(b[1] == 6 && a[2] == 4 && c[0] == 3);
    session.run_named({{"x", {x, {3}}}}, {{"c", a}});
    CHECK(a == c);
    refused(NNEFC_BAD_ARGUMENT, "no input \"z\"", [&] { session.run_named({{"z", x}}, {{"a", a}}); });
    refused(NNEFC_BAD_ARGUMENT, "no output \"z\"", [&] { session.run_named({{"x", x}}, {{"z", a}}); });
    refused(NNEFC_BAD_ARGUMENT, "\"x\" is given twice", [&] { session.run_named({{"x", x}, {"x", x}}, {{"a", a}}); });
    refused(NNEFC_BAD_ARGUMENT, "\"x\" is missing", [&] { session.run_named({}, {{"a", a}}); });
    session.select({"b"});
    CHECK((session.run<float>({x}) == std::vector<float>{4, 6, 8}));
    session.time_kernels(true);
    session.select();
    session.run({x}, {a, b, c});
    const std::vector<nnefc::KernelTime> times = session.kernel_times();
    CHECK(times.size() == 4 && times[2].kernel == "triple" && times[2].tensors == "c\n" && times[2].calls == 1 && b[0] == 4);
}

// Threads of one library for sessions of another, memory of the program's, and a limit of time.
static void resources(const nnefc::Library &library, const nnefc::Library &other) {
    std::pmr::synchronized_pool_resource memory;
    nnefc::Options options;
    options.use_memory(memory);
    options.shared_threads = other.threads(3);
    options.time_limit = std::chrono::milliseconds(1);
    std::vector<std::int64_t> squares(100);
    options.shared_threads->run(100, [&](std::uint32_t i) { squares[i] = static_cast<std::int64_t>(i) * i; });
    CHECK(squares[99] == 99 * 99 && options.shared_threads->count() == 3);
    nnefc::Session session = library.session(options);
    options.shared_threads = nullptr; // the session keeps them
    CHECK(session.run<float>({std::vector<float>(8, 3.0f)})[7] == 9);
    refused(NNEFC_TIMED_OUT, "not over after 1 ms", [&] { session.run<float>({std::vector<float>(1, -1.0f)}); });
    session.set_time_limit(std::chrono::seconds(0));
    CHECK(session.run<float>({std::vector<float>(1, 4.0f)})[0] == 16);
    options.use_memory(*std::pmr::null_memory_resource());
    refused(NNEFC_OUT_OF_MEMORY, "no memory for a session", [&] { library.session(options); });
    options.shared_threads = library.threads();
    options.processors = {0};
    options.threads = 1;
    refused(NNEFC_BAD_ARGUMENT, "shared_threads are given, and also", [&] { library.session(options); });
}

static nnefc::Library in_memory(const char *path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    refused(NNEFC_BAD_ARGUMENT, "", [&] { nnefc::Library::from_memory(content.data(), 100); });
    return nnefc::Library::from_memory(content.data(), content.size());
}

static void libraries_in_memory(const char *squares, const char *data_dependent) { // two at a time, of which the first goes first
    auto first = std::make_unique<nnefc::Library>(in_memory(squares));
    one_output(first->session());
    const nnefc::Library second = in_memory(data_dependent);
    first.reset();
    const nnefc::Library third = in_memory(squares);
    one_output(third.session());
    CHECK(second.session().dimensions()[1].name == "rows" && third.session().inputs()[0].name == "x");
}

static void data_dependent_output(nnefc::Session session) { // as large as the data say
    CHECK(session.outputs()[0].shape[0] < 0 && session.dimensions()[1].name == "rows");
    std::vector<float> y(20);
    std::vector<std::int64_t> total(1);
    for (float rows : {3.0f, 10.0f, 0.0f}) {
        const std::vector<float> x = {rows - 1, 1};
        session.run({x}, {y, total});
        CHECK((session.outputs()[0].shape == std::vector<std::int64_t>{static_cast<std::int64_t>(rows), 2}));
        CHECK(total[0] == static_cast<std::int64_t>(rows) && (rows == 0 || y[0] == x[0]));
    }
    const std::vector<float> x = {10, 1};
    refused(NNEFC_TOO_SMALL, "output \"y\" has 88 bytes, but memory for 80", [&] { session.run({x}, {y, total}); });
    CHECK(session.outputs()[0].elements() == 22);
    session.reserve({2, 11});
    y.resize(session.outputs()[0].elements());
    session.run({x}, {y, total});
    CHECK(y[20] == 10 && y[21] == 10);
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    const nnefc_interface interface = NNEFC_INTERFACE(open_sample);
    runs(nnefc::Session(interface, {}, nullptr, {}, NNEFC_OPEN_INTERFACE(open_sample)));
    refused(NNEFC_BAD_ARGUMENT, "give the session NNEFC_OPEN_INTERFACE", [&] { nnefc::Session session(interface); });
    runs(nnefc::Library(argv[1]).session());
    one_output(nnefc::Library(argv[2]).session());
    pool_of_sessions(nnefc::Library(argv[2]));
    libraries_in_memory(argv[2], argv[3]);
    by_itself(nnefc::Library(argv[2]));
    resources(nnefc::Library(argv[2]), nnefc::Library(argv[4]));
    some_outputs(nnefc::Library(argv[4]).session());
    data_dependent_output(nnefc::Library(argv[3]).session());
    std::puts("ok");
    return 0;
}

// Uses nnefc.hpp in every way; linked with the sample network by the name `sample`, and given two shared libraries of it:
// session COMBINED SEPARATE ELSEWHERE, the last being the path of the second one's weights. Prints "ok".
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "nnefc.hpp"
#include "sample.h"

#define CHECK(condition)                                                         \
    do {                                                                         \
        if (!(condition)) {                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                        \
        }                                                                        \
    } while (0)

static_assert(!std::is_copy_constructible_v<nnefc::Session> && !std::is_copy_assignable_v<nnefc::Session>);
static_assert(std::is_nothrow_move_constructible_v<nnefc::Session> && std::is_nothrow_move_assignable_v<nnefc::Session>);
static_assert(!std::is_convertible_v<const std::vector<float> &, nnefc::Output>, "outputs are written");

struct Run {
    std::vector<float> x = std::vector<float>(1024, 1.0f), y = std::vector<float>(1024);
    std::array<std::int64_t, 1> count{};

    std::int64_t operator()(nnefc::Session &session) {
        session.run({x}, {y, count});
        return count[0];
    }
};

template <class Action> static std::string failure(nnefc_status status, Action action) {
    try {
        action();
    } catch (const nnefc::Error &error) {
        CHECK(error.status() == status);
        return error.what();
    }
    return "nothing was thrown";
}

static void runs(nnefc::Session session) {
    Run run;
    CHECK(run(session) == 6 && run(session) == 7);
    session.reset();
    CHECK(run(session) == 6);
    float x[1024] = {1}, y[1024];
    std::int64_t count = 0;
    session.run({{x, 1024}}, {{y, 1024}, {&count, 1}});
    CHECK(count == 7 && y[0] == run.y[0] && y[1] == 0);
    CHECK(session.inputs().size() == 1 && session.inputs()[0].name == "x" && session.inputs()[0].elements() == 1024);
    CHECK(session.outputs()[1].type == NNEFC_INT64 && session.outputs()[1].shape == std::vector<std::int64_t>{1});
    CHECK(std::strcmp(session.description().model, "sample") == 0);
}

static void moves(const nnefc::Library &library) {
    Run run;
    nnefc::Session first = library.session(), second = library.session();
    CHECK(run(first) == 6);
    nnefc::Session third = std::move(first);
    CHECK(run(third) == 7 && run(second) == 6);
    second = std::move(third);
    CHECK(run(second) == 8);
    nnefc::Session &same = second;
    second = std::move(same);
    CHECK(run(second) == 9);
    CHECK(failure(NNEFC_BAD_ARGUMENT, [&] { run(first); }) == "the session was moved from");
    first = library.session();
    CHECK(run(first) == 6);
}

static void refusals(nnefc::Session session) {
    Run run;
    std::vector<double> doubles(1024);
    std::vector<float> few(1023);
    const auto refused = [](auto action) { return failure(NNEFC_BAD_ARGUMENT, action); };
    CHECK(refused([&] { session.run({doubles}, {run.y, run.count}); }) ==
          "input \"x\" is given as float64, but the network has float32");
    CHECK(refused([&] { session.run({few}, {run.y, run.count}); }) ==
          "input \"x\" is given 1023 elements, but the network has 1024");
    CHECK(refused([&] { session.run({run.x}, {few, run.count}); }) ==
          "output \"y\" is given 1023 elements, but the network has 1024");
    CHECK(refused([&] { session.run({run.x, run.x}, {run.y, run.count}); }) == "2 inputs are given, but the network has 1");
    CHECK(refused([&] { session.run({}, {run.y, run.count}); }) == "0 inputs are given, but the network has 1");
    CHECK(refused([&] { session.run<float>({run.x}); }) == "1 outputs are given, but the network has 2");
    float *misaligned = reinterpret_cast<float *>(reinterpret_cast<char *>(run.x.data()) + 1);
    CHECK(refused([&] { session.run({{misaligned, 1024}}, {run.y, run.count}); }) ==
          "bad argument: input \"x\" is not aligned to its elements of 4 bytes");
    run.x[0] = -1;
    CHECK(failure(NNEFC_KERNEL_ERROR, [&] { run(session); }).find("bad luck") != std::string::npos);
    run.x[0] = 1;
    session.reset();
    CHECK(run(session) == 6);
}

static void libraries(const char *combined, const char *separate, const char *elsewhere) {
    nnefc::Session kept = nnefc::Library(combined).session(); // outlives its library
    Run run;
    CHECK(run(kept) == 6);
    const nnefc::Library library(separate);
    CHECK(failure(NNEFC_BAD_WEIGHTS, [&] { library.session(); }).find("cannot be read") != std::string::npos);
    nnefc::Options options;
    options.weights = elsewhere;
    options.threads = 2;
    runs(library.session(options));
    const std::vector<nnefc::Entry> embedded = library.metadata();
    CHECK(embedded.size() == 2 && embedded[0].key == "author" && embedded[0].value == "«ä»");
    CHECK(embedded[1].key == std::string_view("b\0", 2) && embedded[1].value.empty());
    CHECK(library.session(options).metadata()[0].value == "«ä»" && kept.metadata().empty());
    options.threads = -1;
    CHECK(failure(NNEFC_BAD_ARGUMENT, [&] { library.session(options); }) ==
          "bad argument: threads is -1, not a number from 0 to 1024");
    CHECK(failure(NNEFC_BAD_ARGUMENT, [] { nnefc::Library("none.so"); }).find("none.so") != std::string::npos);
}

static void threads(const nnefc::Library &library) {
    std::vector<std::thread> callers;
    for (int i = 0; i < 4; i++)
        callers.emplace_back([&library] {
            nnefc::Session session = library.session();
            Run run;
            for (std::int64_t n = 0; n < 50; n++) CHECK(run(session) == 6 + n);
        });
    for (std::thread &caller : callers) caller.join();
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    const nnefc_interface sample = NNEFC_INTERFACE(sample);
    runs(nnefc::Session(sample));
    refusals(nnefc::Session(sample));
    const nnefc::Library library(argv[1]);
    runs(library.session());
    moves(library);
    libraries(argv[1], argv[2], argv[3]);
    threads(library);
    std::puts("ok");
    return 0;
}

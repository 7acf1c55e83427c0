// nnefc.hpp - a compiled network in C++17: nnefc.h with objects that clean up after themselves, exceptions or results, and checks.
//
//     auto session = nnefc::Library("digits.so").session();     // opened at run time, or
//     auto session = nnefc::linked();                           // linked into this program, or, by a name of its own,
//     const nnefc_interface digits = NNEFC_INTERFACE(digits);   // with digits.h
//     nnefc::Session session(digits);
//
//     std::vector<float> image(64);
//     std::vector<float> probability = session.run<float>({image});      // one output
//     session.run({image}, {probability});                               // any number, into memory of the caller's
//
// Inputs and outputs are whatever holds its elements one after another and has data() and size(): std::vector, std::array,
// std::span, and pointers with a number of elements. Their element type and number are compared with the network's before
// anything runs. Everything throws nnefc::Error with the status and the library's own message.
//
// Without exceptions (-fno-exceptions, or NNEFC_NO_EXCEPTIONS defined before this header), functions that may fail return an
// nnefc::Expected, which has a value or an Error, and objects are made by functions in place of constructors. The header needs no
// run-time type information (-fno-rtti):
//
//     nnefc::Expected<nnefc::Library> library = nnefc::Library::load("digits.so");
//     if (!library) return std::puts(library.error().what()), 1;
//     auto session = library->session();                                 // also Session::create, Pool::create, linked
//     auto probability = session->run<float>({image});
//     if (probability) use(*probability);
//
// With exceptions Expected<T> is another name of T, and the same functions exist.
//
// Elements of strings are nnefc::String, which std::string_view becomes and which becomes one; the bytes of outputs are there
// until the session runs again:
//
//     std::vector<nnefc::String> words = {"one", std::string_view("two")}, found(2);
//     session.run({words}, {found});
//     std::string_view first = found[0];
//
// Where sizes of the network are open, an input says its shape, unless one size alone is open; outputs may be larger than
// need be, and have the shape of the last run in session.outputs():
//
//     session.run({{image, {5, 3, 224, 224}}}, {probabilities});
//     session.outputs()[0].shape                                         // {5, 1000}
//     session.reserve();                                                 // memory for all sizes that the network takes
//
// Runs for some outputs leave out what only the others need; times of kernels are taken while they are wanted:
//
//     session.select({"embedding"});
//     session.run({image}, {embedding});
//     session.time_kernels(true);
//     for (const nnefc::KernelTime &kernel : session.kernel_times()) std::cout << kernel.kernel << kernel.nanoseconds;
//
// Networks for GPUs take pointers to the GPU's memory as well, with a number of elements, and begin runs on streams:
//
//     session.enqueue({{image, 64}}, {{probability, 10}}, stream);
//     session.synchronize();
//
// A pool shares sessions among threads: its runs may be called from any of them, waited for as futures, or call back:
//
//     nnefc::Pool pool(nnefc::Library("digits.so"), 4);
//     pool.run({image}, {probabilities});                                // in a free session; waits for one
//     std::future<std::vector<nnefc::Tensor>> done = pool.submit({image}, {probabilities});
//     pool.submit({image}, {probabilities}, [](std::vector<nnefc::Tensor> outputs, std::exception_ptr error) { … });
//
// Sessions of several networks share threads, take memory from an allocator of the program's, and end runs that take too long:
//
//     nnefc::Options options;
//     options.shared_threads = library.threads(4);                       // for sessions of any library
//     options.use_memory(resource);                                      // a std::pmr::memory_resource
//     options.time_limit = std::chrono::milliseconds(20);                // runs throw NNEFC_TIMED_OUT
#ifndef NNEFC_HPP
#define NNEFC_HPP

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "nnefc.h"

#if defined(__unix__) || defined(__APPLE__)
#define NNEFC_HAS_DLOPEN 1
#include <dlfcn.h>
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

#if !defined(NNEFC_NO_EXCEPTIONS) && !defined(__cpp_exceptions) && !defined(_CPPUNWIND)
#define NNEFC_NO_EXCEPTIONS 1
#endif

// How functions of this header fail, and call each other. NNEFC_LET is a variable with the value of a call.
#ifdef NNEFC_NO_EXCEPTIONS
#define NNEFC_FAIL(status, message) return ::nnefc::Error(status, message)
#define NNEFC_TRY(...)                                                                     \
    do {                                                                                   \
        if (auto nnefc_outcome = (__VA_ARGS__); !nnefc_outcome) return nnefc_outcome.error(); \
    } while (false)
#define NNEFC_LET(name, ...)                                \
    auto name##_or_error = (__VA_ARGS__);                   \
    if (!name##_or_error) return name##_or_error.error();   \
    auto name = std::move(*name##_or_error)
#else
#define NNEFC_FAIL(status, message) throw ::nnefc::Error(status, message)
#define NNEFC_TRY(...) __VA_ARGS__
#define NNEFC_LET(name, ...) auto name = (__VA_ARGS__)
#endif

namespace nnefc {
#ifdef NNEFC_NO_EXCEPTIONS
inline namespace without_exceptions { // other classes than those of files that are compiled with exceptions
#endif

class Error : public std::runtime_error {
public:
    Error(nnefc_status status, const std::string &message) : std::runtime_error(message), status_(status) {}

    // What a call answered; NNEFC_BAD_ARGUMENT for what was refused before a call.
    nnefc_status status() const noexcept { return status_; }

private:
    nnefc_status status_;
};

#ifdef NNEFC_NO_EXCEPTIONS
// What a function returns that may fail: a value, or why there is none. The value of a failure must not be asked for: that ends the
// program.
template <class T> class [[nodiscard]] Expected {
public:
    Expected(const T &value) : state_(std::in_place_index<0>, value) {}
    Expected(T &&value) : state_(std::in_place_index<0>, std::move(value)) {}
    Expected(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    bool has_value() const noexcept { return state_.index() == 0; }
    explicit operator bool() const noexcept { return has_value(); }

    T &value() & noexcept { return *checked(std::get_if<0>(&state_)); }
    const T &value() const & noexcept { return *checked(std::get_if<0>(&state_)); }
    T &&value() && noexcept { return std::move(*checked(std::get_if<0>(&state_))); }
    T &operator*() & noexcept { return value(); }
    const T &operator*() const & noexcept { return value(); }
    T &&operator*() && noexcept { return std::move(*this).value(); }
    T *operator->() noexcept { return &value(); }
    const T *operator->() const noexcept { return &value(); }

    // Of a failure.
    const Error &error() const noexcept { return *checked(std::get_if<1>(&state_)); }

private:
    template <class Pointer> static Pointer checked(Pointer found) noexcept {
        if (found == nullptr) std::abort();
        return found;
    }

    std::variant<T, Error> state_;
};

template <> class [[nodiscard]] Expected<void> : public Expected<std::monostate> {
public:
    Expected() : Expected<std::monostate>(std::monostate()) {}
    Expected(Error error) : Expected<std::monostate>(std::move(error)) {}
};
#else
template <class T> using Expected = T;
#endif

// The name of an element type, as in messages: "float32".
inline const char *type_name(std::int32_t type) noexcept {
    static const char *const names[] = {"?",     "bool",   "int8",   "int16",   "int32",    "int64",   "uint8",
                                        "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64", "string"};
    return type >= NNEFC_BOOL && type <= NNEFC_STRING ? names[type] : names[0];
}

// An element of a tensor of strings, in the form that the library has them; it refers to the bytes of somebody else.
struct String : nnefc_string {
    String() noexcept : nnefc_string{nullptr, 0} {}
    String(std::string_view text) noexcept : nnefc_string{text.data(), text.size()} {}
    String(const char *text) noexcept : String(std::string_view(text)) {}
    String(const std::string &text) noexcept : String(std::string_view(text)) {}
    operator std::string_view() const noexcept { return {data, size}; }
};
static_assert(sizeof(String) == sizeof(nnefc_string), "an array of the one is an array of the other");

// The element type that C++ calls T. Of types that the standard lacks, the bit patterns: std::uint16_t fits float16 and
// bfloat16 too.
template <class T> constexpr nnefc_type type_of() noexcept {
    constexpr bool is_string = std::is_base_of_v<nnefc_string, T>;
    static_assert(is_string || (std::is_arithmetic_v<T> && sizeof(T) <= 8 && !std::is_same_v<T, long double>), "no element type");
    if constexpr (is_string) return NNEFC_STRING;
    else if constexpr (std::is_same_v<T, bool>) return NNEFC_BOOL;
    else if constexpr (std::is_same_v<T, float>) return NNEFC_FLOAT32;
    else if constexpr (std::is_same_v<T, double>) return NNEFC_FLOAT64;
    else if constexpr (std::is_signed_v<T>)
        return sizeof(T) == 1 ? NNEFC_INT8 : sizeof(T) == 2 ? NNEFC_INT16 : sizeof(T) == 4 ? NNEFC_INT32 : NNEFC_INT64;
    else return sizeof(T) == 1 ? NNEFC_UINT8 : sizeof(T) == 2 ? NNEFC_UINT16 : sizeof(T) == 4 ? NNEFC_UINT32 : NNEFC_UINT64;
}

// An input, output or state of a network. Sizes that are open are negative: of an input, -1 - i for dimensions()[i]; of an
// output, until the first run.
struct Tensor {
    std::string name;
    nnefc_type type;
    std::vector<std::int64_t> shape;

    // 0 while a size is open.
    std::size_t elements() const noexcept {
        std::size_t count = 1;
        for (std::int64_t extent : shape) count *= extent < 0 ? 0 : static_cast<std::size_t>(extent);
        return count;
    }
};

// A size that a network takes in a range.
struct Dimension {
    std::string name;
    std::int64_t least, most, multiple, typical; // as in nnefc_dimension
};

// What a model says of itself, in UTF-8; in the library's memory, as long as that is loaded.
struct Entry {
    std::string_view key, value;
};

// All of these; none of libraries that end before them.
inline std::vector<Entry> metadata(const nnefc_description &network) {
    std::vector<Entry> found;
    if (network.struct_size < offsetof(nnefc_description, metadata) + sizeof network.metadata) return found;
    for (std::uint32_t i = 0; i < network.metadata_count; i++) {
        const nnefc_entry &entry = network.metadata[i];
        found.push_back({{entry.key.data, entry.key.size}, {entry.value.data, entry.value.size}});
    }
    return found;
}

// The shape of an input, for networks with dynamic sizes.
struct Shape {
    std::vector<std::int64_t> sizes;

    Shape(std::initializer_list<std::int64_t> list) : sizes(list) {}
    explicit Shape(std::vector<std::int64_t> list) : sizes(std::move(list)) {}
};

// The elements of a tensor in the caller's memory; Pointer is const void * or void *. It must not outlive what it was made of.
template <class Pointer> class Elements {
public:
    template <class T, class = std::enable_if_t<std::is_convertible_v<T *, Pointer>>>
    Elements(T *data, std::size_t count) noexcept
        : data_(data), count_(count), bytes_(count * sizeof(T)), type_(type_of<std::remove_cv_t<T>>()) {}

    template <class T, class = std::enable_if_t<std::is_convertible_v<T *, Pointer>>>
    Elements(T *data, std::size_t count, Shape shape) : Elements(data, count) {
        shape_ = std::move(shape.sizes);
        has_shape_ = true;
    }

    template <class Container, class T = std::remove_pointer_t<decltype(std::declval<Container &>().data())>,
              class = std::enable_if_t<std::is_convertible_v<T *, Pointer> && !std::is_void_v<T>>>
    Elements(Container &&container) noexcept : Elements(container.data(), container.size()) {} // not explicit, by intention

    template <class Container, class T = std::remove_pointer_t<decltype(std::declval<Container &>().data())>,
              class = std::enable_if_t<std::is_convertible_v<T *, Pointer> && !std::is_void_v<T>>>
    Elements(Container &&container, Shape shape) : Elements(container.data(), container.size(), std::move(shape)) {}

    Pointer data() const noexcept { return data_; }
    std::size_t bytes() const noexcept { return bytes_; }

    // The shape for a tensor with dynamic sizes: that which was given, or what follows from the number of elements.
    Expected<std::vector<std::int64_t>> shape(const Tensor &tensor) const {
        if (has_shape_) {
            if (shape_.size() != tensor.shape.size())
                NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "input \"" + tensor.name + "\" is given a shape of " + std::to_string(shape_.size()) +
                                                   " sizes, but the network has " + std::to_string(tensor.shape.size()));
            return shape_;
        }
        std::vector<std::int64_t> found = tensor.shape;
        std::int64_t *open = nullptr;
        std::size_t known = 1;
        for (std::int64_t &size : found) {
            if (size >= 0) known *= static_cast<std::size_t>(size);
            else if (open == nullptr) open = &size;
            else NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "input \"" + tensor.name + "\" has several dynamic sizes: give its shape, as in "
                                                    "{data, {1, 3, 224, 224}}");
        }
        if (open != nullptr && known != 0) *open = static_cast<std::int64_t>(count_ / known);
        return found;
    }

    Expected<void> check_type(const Tensor &tensor, const char *role) const {
        const bool bits = type_ == NNEFC_UINT16 && (tensor.type == NNEFC_FLOAT16 || tensor.type == NNEFC_BFLOAT16);
        if (type_ != tensor.type && !bits)
            NNEFC_FAIL(NNEFC_BAD_ARGUMENT, std::string(role) + " \"" + tensor.name + "\" is given as " + type_name(type_) +
                                               ", but the network has " + type_name(tensor.type));
        return Expected<void>();
    }

    Expected<void> check(const Tensor &tensor, const char *role) const {
        NNEFC_TRY(check_type(tensor, role));
        if (has_shape_ && shape_ != tensor.shape)
            NNEFC_FAIL(NNEFC_BAD_ARGUMENT, std::string(role) + " \"" + tensor.name + "\" is given another shape than the network has");
        if (count_ != tensor.elements())
            NNEFC_FAIL(NNEFC_BAD_ARGUMENT, std::string(role) + " \"" + tensor.name + "\" is given " + std::to_string(count_) +
                                               " elements, but the network has " + std::to_string(tensor.elements()));
        return Expected<void>();
    }

private:
    Pointer data_;
    std::size_t count_, bytes_;
    nnefc_type type_;
    bool has_shape_ = false;
    std::vector<std::int64_t> shape_;
};

using Input = Elements<const void *>;
using Output = Elements<void *>;

// A kernel at one position of the network, and what its calls took; see nnefc_kernel_times.
struct KernelTime {
    std::string kernel, tensors, rule;
    std::uint64_t operations, bytes, calls, nanoseconds;
};

// What is called when a run is over that goes on by itself: with the outputs and their shapes, or with its failure. It must not throw.
#ifdef NNEFC_NO_EXCEPTIONS
using Callback = std::function<void(Expected<std::vector<Tensor>> outputs)>;
#else
using Callback = std::function<void(std::vector<Tensor> outputs, std::exception_ptr error)>;
#endif

class Threads;

struct Options {
    int threads = 0;               // 0: the environment's NNEFC_NUM_THREADS, else as many as there are processors
    std::string weights;           // the file with the trained values; empty: where the library looks for it
    void *workspace = nullptr;     // memory of the caller's own, see nnefc.h
    std::uint64_t workspace_bytes = 0;
    std::int64_t device = 0;       // the number of the GPU
    bool keep_subnormals = false;  // compute with numbers of less than about 1e-38, which takes longer
    std::vector<std::int32_t> processors;         // one for each thread, that it runs on alone; the first is not looked at
    nnefc_parallel_for *parallel_for = nullptr;   // the caller's own threads, see nnefc.h
    void *parallel_for_pool = nullptr;
    const void *constants = nullptr;              // the trained values in the caller's memory, see nnefc.h
    std::uint64_t constant_bytes = 0;
    nnefc_allocate *allocate = nullptr;           // the program's allocator, see nnefc.h; or by use_memory()
    nnefc_release *release = nullptr;
    void *allocator = nullptr;
    std::shared_ptr<Threads> shared_threads;      // in place of threads of the session's own, see Library::threads
    std::chrono::nanoseconds time_limit{0};       // of each run, see Session::set_time_limit; 0: none

    // Has sessions allocate by a std::pmr::memory_resource, or another object with allocate(bytes, alignment) and
    // deallocate(memory, bytes, alignment), which must outlive them.
    template <class Resource> void use_memory(Resource &resource) noexcept {
        allocator = &resource;
        allocate = [](void *context, std::size_t bytes, std::size_t alignment) -> void * {
#ifdef NNEFC_NO_EXCEPTIONS
            return static_cast<Resource *>(context)->allocate(bytes, alignment);
#else
            try {
                return static_cast<Resource *>(context)->allocate(bytes, alignment);
            } catch (...) {
                return nullptr;
            }
#endif
        };
        release = [](void *context, void *memory, std::size_t bytes, std::size_t alignment) {
            static_cast<Resource *>(context)->deallocate(memory, bytes, alignment);
        };
    }
};

// Threads that sessions share, of any libraries, and that loops of the program may run on. Made by Library::threads, or by create();
// they stay as long as a session uses them.
class Threads {
public:
    // `count` threads, the calling one included; 0: NNEFC_NUM_THREADS, else as many as there are processors. `functions` are those of
    // any library: NNEFC_THREADS_INTERFACE(nnefc); `owner`, if given, is what they live in.
    static Expected<std::shared_ptr<Threads>> create(const nnefc_threads_interface &functions, int count = 0,
                                                     std::shared_ptr<void> owner = nullptr) {
        if (functions.create == nullptr) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "this library runs in the calling thread alone");
        nnefc_options options = {};
        options.struct_size = sizeof options;
        options.threads = count;
        nnefc_threads *made = nullptr;
        const nnefc_status status = functions.create(&options, &made);
        if (status != NNEFC_OK) NNEFC_FAIL(status, std::string(functions.status_name(status)) + ": " + functions.last_error(nullptr));
        return std::shared_ptr<Threads>(new Threads(functions, made, std::move(owner)));
    }

    Threads(const Threads &) = delete;
    Threads &operator=(const Threads &) = delete;
    ~Threads() { functions_.destroy(threads_); }

    // How many tasks run at the same time.
    std::uint32_t count() const noexcept { return functions_.count(threads_); }

    // Calls task(i) for each i from 0 to count - 1, on any of the threads, and returns after the last call. It must not throw.
    template <class Task> void run(std::uint32_t count, Task &&task) const {
        using Called = std::remove_reference_t<Task>;
        functions_.run(
            threads_, count, [](void *context, std::uint32_t i) { (*static_cast<Called *>(context))(i); },
            const_cast<void *>(static_cast<const void *>(&task)));
    }

    // For Options::parallel_for and Options::parallel_for_pool.
    nnefc_parallel_for *parallel_for() const noexcept { return functions_.run; }
    void *pool() const noexcept { return threads_; }

private:
    Threads(const nnefc_threads_interface &functions, nnefc_threads *threads, std::shared_ptr<void> owner)
        : owner_(std::move(owner)), functions_(functions), threads_(threads) {}

    std::shared_ptr<void> owner_; // first, so that it is destroyed last
    nnefc_threads_interface functions_;
    nnefc_threads *threads_;
};

// A session of a network: its states, memory and threads. Can be moved, not copied; what was moved from can be destroyed or
// assigned to. One thread at a time may use it: a call during another one throws NNEFC_BUSY.
class Session {
public:
    // `owner`, if given, is kept as long as the session: what the functions live in. `device` are those of networks for GPUs:
    // NNEFC_DEVICE_INTERFACE(nnefc), `open` those of networks with dynamic sizes: NNEFC_OPEN_INTERFACE(nnefc). `cancel`, `control`
    // and `selection` are NNEFC_CANCEL_INTERFACE(nnefc), NNEFC_CONTROL_INTERFACE(nnefc), or NNEFC_OPEN_CONTROL_INTERFACE(nnefc) with
    // dynamic sizes, and NNEFC_SELECTION_INTERFACE(nnefc).
    static Expected<Session> create(const nnefc_interface &functions, const Options &options = {}, std::shared_ptr<void> owner = nullptr,
                                    const nnefc_device_interface &device = {}, const nnefc_open_interface &open = {},
                                    const nnefc_cancel_interface &cancel = {}, const nnefc_control_interface &control = {},
                                    const nnefc_selection_interface &selection = {}) {
        Session made({functions, device, open, cancel, control, selection}, std::move(owner));
        NNEFC_TRY(made.begin(options));
        return made;
    }

#ifndef NNEFC_NO_EXCEPTIONS
    // The same.
    explicit Session(const nnefc_interface &functions, const Options &options = {}, std::shared_ptr<void> owner = nullptr,
                     const nnefc_device_interface &device = {}, const nnefc_open_interface &open = {},
                     const nnefc_cancel_interface &cancel = {}, const nnefc_control_interface &control = {},
                     const nnefc_selection_interface &selection = {})
        : Session({functions, device, open, cancel, control, selection}, std::move(owner)) {
        begin(options);
    }
#endif

    Session(Session &&other) noexcept
        : owner_(std::move(other.owner_)), threads_(std::move(other.threads_)), functions_(other.functions_), device_(other.device_),
          open_(other.open_), cancel_(other.cancel_), control_(other.control_), selection_(other.selection_),
          inputs_(std::move(other.inputs_)), outputs_(std::move(other.outputs_)), selected_(std::move(other.selected_)),
          session_(std::exchange(other.session_, nullptr)) {}

    Session &operator=(Session &&other) noexcept {
        if (this == &other) return *this;
        end();
        session_ = std::exchange(other.session_, nullptr);
        functions_ = other.functions_;
        device_ = other.device_;
        open_ = other.open_;
        cancel_ = other.cancel_;
        control_ = other.control_;
        selection_ = other.selection_;
        selected_ = std::move(other.selected_);
        inputs_ = std::move(other.inputs_);
        outputs_ = std::move(other.outputs_);
        threads_ = std::move(other.threads_);
        owner_ = std::move(other.owner_); // last: it may unload what destroyed the session
        return *this;
    }

    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    ~Session() { end(); }

    const nnefc_description &description() const noexcept { return *functions_.describe(); }
    std::vector<Entry> metadata() const { return nnefc::metadata(description()); }
    const std::vector<Tensor> &inputs() const noexcept { return inputs_; }
    const std::vector<Tensor> &outputs() const noexcept { return outputs_; }

    // The open ones.
    std::vector<Dimension> dimensions() const {
        std::vector<Dimension> found;
        for (std::uint32_t i = 0; is_open() && i < description().dimension_count; i++) {
            const nnefc_dimension &d = description().dimensions[i];
            found.push_back({d.name, d.least, d.most, d.multiple, d.typical});
        }
        return found;
    }

    // Allocates memory for all sizes up to these, in the order of dimensions(); for all that the network takes, if there are none.
    Expected<void> reserve(const std::vector<std::int64_t> &sizes = {}) {
        if (!is_open()) return Expected<void>();
        if (session_ == nullptr) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "the session was moved from");
        if (!sizes.empty() && sizes.size() != description().dimension_count)
            NNEFC_FAIL(NNEFC_BAD_ARGUMENT, std::to_string(sizes.size()) + " sizes are given, but the network has " +
                                               std::to_string(description().dimension_count) + " dynamic dimensions");
        return check(open_.reserve(session_, sizes.empty() ? nullptr : sizes.data(), 1), session_);
    }

    // Has later runs compute these outputs only, and take memory for them in this order; without names, for all outputs again.
    Expected<void> select(const std::vector<std::string> &names = {}) {
        if (session_ == nullptr) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "the session was moved from");
        std::vector<std::size_t> found;
        std::vector<std::uint8_t> selected(outputs_.size() + 1, names.empty());
        for (const std::string &name : names) {
            NNEFC_LET(index, index_of(outputs_, name, "output"));
            if (selected[index] != 0) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "the output \"" + name + "\" is selected twice");
            selected[index] = 1;
            found.push_back(index);
        }
        if (selection_.select_outputs != nullptr) NNEFC_TRY(check(selection_.select_outputs(session_, selected.data()), session_));
        else if (!names.empty() && found.size() < outputs_.size()) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "this library computes all outputs");
        selected_ = std::move(found);
        return Expected<void>();
    }

    // Runs the network on inputs, into outputs, both in the network's order; or into the outputs that are selected.
    Expected<void> run(const std::vector<Input> &inputs, const std::vector<Output> &outputs) {
        if (is_open()) {
            NNEFC_LET(found, in_c_outputs(outputs));
            return run_sized(inputs, found);
        }
        NNEFC_LET(in, checked<const void *>(inputs, inputs_, "input"));
        NNEFC_LET(out, checked_outputs(outputs));
        return check(functions_.run(session_, in.data(), out.data()), session_);
    }

    // Runs the network on inputs and into outputs by their names, in any order. Outputs that are not named are not computed, nor
    // by later runs: see select().
    Expected<void> run_named(const std::vector<std::pair<std::string, Input>> &inputs,
                             const std::vector<std::pair<std::string, Output>> &outputs) {
        std::vector<std::string> names;
        std::vector<Output> out;
        for (const auto &[name, output] : outputs) {
            names.push_back(name);
            out.push_back(output);
        }
        std::vector<const Input *> given(inputs_.size());
        for (const auto &[name, input] : inputs) {
            NNEFC_LET(index, index_of(inputs_, name, "input"));
            if (given[index] != nullptr) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "the input \"" + name + "\" is given twice");
            given[index] = &input;
        }
        std::vector<Input> in;
        for (std::size_t i = 0; i < given.size(); i++) {
            if (given[i] == nullptr) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "the input \"" + inputs_[i].name + "\" is missing");
            in.push_back(*given[i]);
        }
        NNEFC_TRY(select(names));
        return run(in, out);
    }

    // Begins a run and returns; `callback` is called in a thread of the session's own when it is over, and may begin the next one.
    // The tensors must stay until then, and the session where it is; calls on it throw NNEFC_BUSY meanwhile.
    Expected<void> run_async(const std::vector<Input> &inputs, const std::vector<Output> &outputs, Callback callback) {
        if (!can_run_async()) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "this library runs in the calling thread alone");
        auto run = std::make_unique<AsyncRun>(AsyncRun{functions_, std::move(callback), outputs_, {}, {}, {}});
        nnefc_status status;
        if (is_open()) {
            NNEFC_TRY(fill_inputs(inputs, run->shapes, run->in));
            NNEFC_LET(out, in_c_outputs(outputs));
            run->out = std::move(out);
            status = control_.run_sized_async(session_, run->in.data(), run->out.data(), AsyncRun::done, run.get());
        } else {
            NNEFC_LET(in, checked<const void *>(inputs, inputs_, "input"));
            NNEFC_LET(out, checked_outputs(outputs));
            status = control_.run_async(session_, in.data(), out.data(), AsyncRun::done, run.get());
        }
        NNEFC_TRY(check(status, session_));
        run.release(); // `done` has it
        return Expected<void>();
    }

    bool can_run_async() const noexcept { return is_open() ? control_.run_sized_async != nullptr : control_.run_async != nullptr; }

    // Takes the time of each kernel from now on, or no longer.
    Expected<void> time_kernels(bool on) {
        if (control_.time_kernels == nullptr) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "this library takes no times");
        return check(control_.time_kernels(session_, on), session_);
    }

    // Limits the time of each later run, which fails with NNEFC_TIMED_OUT before the first kernel that would begin later; 0: no limit.
    Expected<void> set_time_limit(std::chrono::nanoseconds limit) {
        if (control_.set_time_limit == nullptr) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "runs of this library cannot be limited in time");
        return check(control_.set_time_limit(session_, static_cast<std::int64_t>(limit.count())), session_);
    }

    // The times so far, in the order in which the network runs its kernels; may be called while another thread runs the session.
    std::vector<KernelTime> kernel_times() const {
        std::vector<KernelTime> found;
        if (control_.session_times == nullptr) return found;
        std::vector<nnefc_kernel_times> times(control_.session_times(session_, nullptr, 0));
        control_.session_times(session_, times.data(), static_cast<std::uint32_t>(times.size()));
        for (const nnefc_kernel_times &t : times)
            found.push_back({t.kernel, t.tensors, t.rule, t.operations, t.bytes, t.calls, t.nanoseconds});
        return found;
    }

    // Runs a network with one output of elements T, and returns it.
    template <class T> Expected<std::vector<T>> run(const std::vector<Input> &inputs) {
        static_assert(!std::is_same_v<T, bool>, "std::vector<bool> holds no array: give an output of your own");
        const std::size_t wanted = selected_.size() == 1 ? selected_[0] : 0;
        const bool is_one = output_count() == 1;
        if (is_open() && is_one) {
            NNEFC_TRY(Output(static_cast<T *>(nullptr), 0).check_type(outputs_[wanted], "output"));
            std::vector<nnefc_output> found(outputs_.size()); // in the session's memory
            NNEFC_TRY(run_sized(inputs, found));
            const T *first = static_cast<const T *>(found[wanted].data);
            return std::vector<T>(first, first + found[wanted].bytes / sizeof(T));
        }
        std::vector<T> result(is_one ? outputs_[wanted].elements() : 0);
        NNEFC_TRY(run(inputs, {result}));
        return result;
    }

    // Begins a run on a GPU, whose memory all tensors are in, on a stream of CUDA's (null: the session's own), and returns.
    Expected<void> enqueue(const std::vector<Input> &inputs, const std::vector<Output> &outputs, void *stream = nullptr) {
        NNEFC_LET(in, checked<const void *>(inputs, inputs_, "input"));
        NNEFC_LET(out, checked<void *>(outputs, outputs_, "output"));
        NNEFC_TRY(check_device());
        return check(device_.enqueue(session_, in.data(), out.data(), stream), session_);
    }

    // Waits for the runs that were begun, and fails as they did.
    Expected<void> synchronize() {
        NNEFC_TRY(check_device());
        return check(device_.synchronize(session_), session_);
    }

    // Ends the run that another thread is in, before its next kernel: that call fails with NNEFC_CANCELLED.
    Expected<void> cancel() {
        if (cancel_.cancel == nullptr) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "runs of this library cannot be cancelled");
        return check(cancel_.cancel(session_), session_);
    }

    // Brings the states back to their initial values.
    Expected<void> reset() { return check(functions_.reset(session_), session_); }

private:
    // The functions of a library, by what it can do.
    struct Functions {
        nnefc_interface all;
        nnefc_device_interface device;
        nnefc_open_interface open;
        nnefc_cancel_interface cancel;
        nnefc_control_interface control;
        nnefc_selection_interface selection;
    };

    // Without a session in C, which begin() makes.
    Session(const Functions &functions, std::shared_ptr<void> owner)
        : owner_(std::move(owner)), functions_(functions.all), device_(functions.device), open_(functions.open),
          cancel_(functions.cancel), control_(functions.control), selection_(functions.selection),
          inputs_(tensors(functions.all.describe()->inputs, functions.all.describe()->input_count)),
          outputs_(tensors(functions.all.describe()->outputs, functions.all.describe()->output_count)) {}

    Expected<void> begin(const Options &options) {
        if (description().abi_version == NNEFC_OPEN_ABI_VERSION && !is_open())
            NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "the network has dynamic sizes: give the session NNEFC_OPEN_INTERFACE of its name");
        if (!options.processors.empty() && options.processors.size() != static_cast<std::size_t>(options.threads))
            NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "processors are not as many as threads");
        if (options.shared_threads != nullptr && (options.parallel_for != nullptr || !options.processors.empty()))
            NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "shared_threads are given, and also parallel_for or processors");
        nnefc_options in_c = {};
        in_c.threads = options.threads;
        in_c.workspace = options.workspace;
        in_c.workspace_bytes = options.workspace_bytes;
        in_c.weights = options.weights.empty() ? nullptr : options.weights.c_str();
        in_c.device = options.device;
        in_c.keep_subnormals = options.keep_subnormals ? 1 : 0;
        in_c.processors = options.processors.empty() ? nullptr : options.processors.data();
        in_c.parallel_for = options.parallel_for;
        in_c.parallel_for_pool = options.parallel_for_pool;
        in_c.constant_bytes = options.constant_bytes;
        in_c.constants = options.constants;
        in_c.time_limit = static_cast<std::int64_t>(options.time_limit.count());
        in_c.allocate = options.allocate;
        in_c.release = options.release;
        in_c.allocator = options.allocator;
        if (options.shared_threads != nullptr) {
            if (in_c.threads == 0) in_c.threads = static_cast<std::int32_t>(options.shared_threads->count());
            in_c.parallel_for = options.shared_threads->parallel_for();
            in_c.parallel_for_pool = options.shared_threads->pool();
            threads_ = options.shared_threads;
        }
        in_c.struct_size = static_cast<std::uint32_t>(size_of(in_c));
        nnefc_session *made = nullptr;
        NNEFC_TRY(check(functions_.create(&in_c, &made), nullptr));
        session_ = made;
        return Expected<void>();
    }

    // What all libraries know of the options, unless more is needed.
    static std::size_t size_of(const nnefc_options &options) noexcept {
        if (options.allocate != nullptr || options.release != nullptr || options.time_limit != 0) return sizeof options;
        if (options.constants != nullptr) return offsetof(nnefc_options, time_limit);
        if (options.processors != nullptr || options.parallel_for != nullptr) return offsetof(nnefc_options, constant_bytes);
        if (options.keep_subnormals != 0) return offsetof(nnefc_options, processors);
        if (options.device != 0) return offsetof(nnefc_options, keep_subnormals);
        return options.weights == nullptr ? offsetof(nnefc_options, weights) : offsetof(nnefc_options, device);
    }

    void end() noexcept { // a session that was moved from may have outlived its library
        if (session_ != nullptr) functions_.destroy(session_);
    }

    static Expected<std::size_t> index_of(const std::vector<Tensor> &tensors, const std::string &name, const char *role) {
        for (std::size_t i = 0; i < tensors.size(); i++)
            if (tensors[i].name == name) return i;
        NNEFC_FAIL(NNEFC_BAD_ARGUMENT, std::string("the network has no ") + role + " \"" + name + "\"");
    }

    static std::vector<Tensor> tensors(const nnefc_tensor *first, std::uint32_t count) {
        std::vector<Tensor> found;
        for (std::uint32_t i = 0; i < count; i++)
            found.push_back({first[i].name, static_cast<nnefc_type>(first[i].type), {first[i].shape, first[i].shape + first[i].rank}});
        return found;
    }

    template <class Pointer>
    Expected<std::vector<Pointer>> checked(const std::vector<Elements<Pointer>> &given, const std::vector<Tensor> &tensors,
                                           const char *role) const {
        NNEFC_TRY(check_number(given.size(), tensors.size(), role));
        std::vector<Pointer> pointers;
        for (std::size_t i = 0; i < given.size(); i++) {
            NNEFC_TRY(given[i].check(tensors[i], role));
            pointers.push_back(given[i].data());
        }
        return pointers;
    }

    // A run that goes on by itself, and what must stay until it is over.
    struct AsyncRun {
        nnefc_interface functions;
        Callback callback;
        std::vector<Tensor> outputs;
        std::vector<std::vector<std::int64_t>> shapes;
        std::vector<nnefc_input> in;
        std::vector<nnefc_output> out;

        static void done(void *context, nnefc_status status, const char *error) {
            const std::unique_ptr<AsyncRun> run(static_cast<AsyncRun *>(context));
            run->take_shapes(run->outputs, run->out, run->functions);
#ifdef NNEFC_NO_EXCEPTIONS
            if (status == NNEFC_OK) return run->callback(std::move(run->outputs));
            run->callback(failure(run->functions, status, error));
#else
            if (status == NNEFC_OK) return run->callback(std::move(run->outputs), nullptr);
            run->callback({}, std::make_exception_ptr(failure(run->functions, status, error)));
#endif
        }

        // Gives outputs the shapes that a run has found.
        static void take_shapes(std::vector<Tensor> &outputs, const std::vector<nnefc_output> &found, const nnefc_interface &functions) {
            for (std::size_t i = 0; i < found.size(); i++) {
                if (found[i].shape == nullptr) continue;
                std::int32_t rank = 0; // it may be lower than that in the description
                while (rank < functions.describe()->outputs[i].rank && found[i].shape[rank] != NNEFC_NO_AXIS) rank++;
                outputs[i].shape.assign(found[i].shape, found[i].shape + rank);
            }
        }
    };

    static Error failure(const nnefc_interface &functions, nnefc_status status, const char *more) {
        const std::string message = functions.status_name(status);
        return Error(status, *more != '\0' ? message + ": " + more : message);
    }

    std::size_t output_count() const noexcept { return selected_.empty() ? outputs_.size() : selected_.size(); }

    // The output that stands at a position among those that are selected.
    std::size_t selected(std::size_t position) const noexcept { return selected_.empty() ? position : selected_[position]; }

    Expected<std::vector<void *>> checked_outputs(const std::vector<Output> &given) const {
        NNEFC_TRY(check_number(given.size(), output_count(), "output"));
        std::vector<void *> pointers(outputs_.size());
        for (std::size_t i = 0; i < given.size(); i++) {
            NNEFC_TRY(given[i].check(outputs_[selected(i)], "output"));
            pointers[selected(i)] = given[i].data();
        }
        return pointers;
    }

    bool is_open() const noexcept { return open_.run_sized != nullptr; }

    // Runs a network with dynamic sizes.
    Expected<void> run_sized(const std::vector<Input> &inputs, std::vector<nnefc_output> &outputs) {
        std::vector<std::vector<std::int64_t>> shapes;
        std::vector<nnefc_input> in;
        NNEFC_TRY(fill_inputs(inputs, shapes, in));
        const nnefc_status status = open_.run_sized(session_, in.data(), outputs.data());
        AsyncRun::take_shapes(outputs_, outputs, functions_);
        return check(status, session_);
    }

    // The inputs of a run with dynamic sizes; `in` points into `shapes`.
    Expected<void> fill_inputs(const std::vector<Input> &inputs, std::vector<std::vector<std::int64_t>> &shapes,
                               std::vector<nnefc_input> &in) const {
        NNEFC_TRY(check_number(inputs.size(), inputs_.size(), "input"));
        for (std::size_t i = 0; i < inputs.size(); i++) {
            NNEFC_TRY(inputs[i].check_type(inputs_[i], "input"));
            NNEFC_LET(shape, inputs[i].shape(inputs_[i]));
            shapes.push_back(std::move(shape));
            in.push_back({inputs[i].data(), inputs[i].bytes(), nullptr});
        }
        for (std::size_t i = 0; i < inputs.size(); i++) in[i].shape = shapes[i].data();
        return Expected<void>();
    }

    // The caller's memory for outputs; where there is none, room for nothing.
    Expected<std::vector<nnefc_output>> in_c_outputs(const std::vector<Output> &outputs) const {
        static char nothing;
        NNEFC_TRY(check_number(outputs.size(), output_count(), "output"));
        std::vector<nnefc_output> found(outputs_.size());
        for (std::size_t i = 0; i < outputs.size(); i++) {
            NNEFC_TRY(outputs[i].check_type(outputs_[selected(i)], "output"));
            void *memory = outputs[i].data() != nullptr ? outputs[i].data() : &nothing;
            found[selected(i)] = {memory, outputs[i].bytes(), nullptr, 0, nullptr};
        }
        return found;
    }

    Expected<void> check_number(std::size_t given, std::size_t wanted, const char *role) const {
        if (session_ == nullptr) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "the session was moved from");
        if (given != wanted)
            NNEFC_FAIL(NNEFC_BAD_ARGUMENT, std::to_string(given) + " " + role + "s are given, but the " +
                                               (wanted == selected_.size() && *role == 'o' ? "selection" : "network") + " has " +
                                               std::to_string(wanted));
        return Expected<void>();
    }

    Expected<void> check_device() const {
        if (device_.enqueue == nullptr) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "the network does not run on a GPU");
        return Expected<void>();
    }

    Expected<void> check(nnefc_status status, const nnefc_session *session) const {
        if (status == NNEFC_OK) return Expected<void>();
        const char *more = status == NNEFC_BUSY ? "" : functions_.last_error(session); // it belongs to the other call
        const Error error = failure(functions_, status, more);
        NNEFC_FAIL(error.status(), error.what());
    }

    std::shared_ptr<void> owner_; // first, so that it is destroyed last
    std::shared_ptr<Threads> threads_; // null for threads of the session's own
    nnefc_interface functions_;
    nnefc_device_interface device_; // null pointers for networks that run on processors
    nnefc_open_interface open_;     // null pointers for networks without dynamic sizes
    nnefc_cancel_interface cancel_; // a null pointer for libraries whose runs cannot be ended
    nnefc_control_interface control_; // null pointers likewise
    nnefc_selection_interface selection_; // a null pointer for libraries that compute all outputs
    std::vector<Tensor> inputs_, outputs_;
    std::vector<std::size_t> selected_; // the outputs that runs take memory for; empty for all
    nnefc_session *session_ = nullptr;
};

// A session of the one network that is linked into this program without a name of its own.
inline Expected<Session> linked(const Options &options = {}) {
    static const nnefc_interface functions = NNEFC_INTERFACE(nnefc);
    return Session::create(functions, options);
}

// The text of a language model: tokens of a text, and back. All functions may be called from any thread.
class Tokenizer {
public:
    static Expected<Tokenizer> create(const nnefc_interface &functions, const nnefc_tokenizer_interface &tokenizer,
                                      std::shared_ptr<void> owner = nullptr) {
        if (tokenizer.tokenize == nullptr) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "this library has no tokenizer");
        return Tokenizer(std::move(owner), functions, tokenizer);
    }

#ifndef NNEFC_NO_EXCEPTIONS
    Tokenizer(const nnefc_interface &functions, const nnefc_tokenizer_interface &tokenizer, std::shared_ptr<void> owner = nullptr)
        : Tokenizer(create(functions, tokenizer, std::move(owner))) {}
#endif

    // The tokens of a text in UTF-8. `flags`: NNEFC_WITH_BEGIN_AND_END, NNEFC_FIND_CONTROL.
    Expected<std::vector<std::int64_t>> tokenize(const std::string &text, std::uint32_t flags = NNEFC_WITH_BEGIN_AND_END) const {
        std::vector<std::int64_t> tokens(text.size() / 2 + 16);
        std::size_t count = 0;
        nnefc_status status = tokenizer_.tokenize(text.data(), text.size(), flags, tokens.data(), tokens.size(), &count);
        if (status == NNEFC_TOO_SMALL) {
            tokens.resize(count);
            status = tokenizer_.tokenize(text.data(), text.size(), flags, tokens.data(), tokens.size(), &count);
        }
        NNEFC_TRY(check(status));
        tokens.resize(count);
        return tokens;
    }

    // The text of tokens in UTF-8; its end may be a part of a character. `flags`: NNEFC_SKIP_CONTROL, NNEFC_CONTINUES.
    Expected<std::string> detokenize(const std::vector<std::int64_t> &tokens, std::uint32_t flags = NNEFC_SKIP_CONTROL) const {
        std::string text(8 * tokens.size() + 16, '\0');
        std::size_t size = 0;
        nnefc_status status = tokenizer_.detokenize(tokens.data(), tokens.size(), flags, text.data(), text.size(), &size);
        if (status == NNEFC_TOO_SMALL) {
            text.resize(size);
            status = tokenizer_.detokenize(tokens.data(), tokens.size(), flags, text.data(), text.size(), &size);
        }
        NNEFC_TRY(check(status));
        text.resize(size);
        return text;
    }

private:
    Tokenizer(std::shared_ptr<void> owner, const nnefc_interface &functions, const nnefc_tokenizer_interface &tokenizer)
        : functions_(functions), tokenizer_(tokenizer), owner_(std::move(owner)) {}

    Expected<void> check(nnefc_status status) const {
        if (status != NNEFC_OK) NNEFC_FAIL(status, std::string("the tokenizer: ") + functions_.status_name(status));
        return Expected<void>();
    }

    nnefc_interface functions_;
    nnefc_tokenizer_interface tokenizer_;
    std::shared_ptr<void> owner_;
};

// A message of a conversation: its role and content, and further members as a JSON object.
struct Message {
    std::string role, content, more = {};
};

// What nnefc_chat_options has: functions that the model may call and further variables as JSON, and the time for templates with dates.
struct ChatOptions {
    std::string tools = {}, variables = {};
    bool add_generation_prompt = true;
    std::int64_t local_time = 0;
};

// Conversations by the chat template of a language model. All functions may be called from any thread.
class Chat {
public:
    static Expected<Chat> create(const nnefc_chat_interface &chat, std::shared_ptr<void> owner = nullptr) {
        if (chat.chat == nullptr) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "this library has no chat template");
        return Chat(std::move(owner), chat);
    }

#ifndef NNEFC_NO_EXCEPTIONS
    explicit Chat(const nnefc_chat_interface &chat, std::shared_ptr<void> owner = nullptr) : Chat(create(chat, std::move(owner))) {}
#endif

    // The text of a conversation, to be tokenized with NNEFC_FIND_CONTROL alone.
    Expected<std::string> text(const std::vector<Message> &messages, const ChatOptions &given = {}) const {
        std::vector<nnefc_message> list;
        for (const Message &message : messages) list.push_back({viewed(message.role), viewed(message.content), viewed(message.more)});
        char error[512] = "";
        nnefc_chat_options options = {};
        options.struct_size = sizeof options;
        options.flags = given.add_generation_prompt ? NNEFC_ADD_GENERATION_PROMPT : 0;
        options.tools = viewed(given.tools);
        options.variables = viewed(given.variables);
        options.local_time = given.local_time;
        options.error = error;
        options.error_room = sizeof error;
        std::string text(4096, '\0');
        std::size_t size = 0;
        nnefc_status status = chat_.chat(list.data(), list.size(), &options, text.data(), text.size(), &size);
        if (status == NNEFC_TOO_SMALL) {
            text.resize(size);
            status = chat_.chat(list.data(), list.size(), &options, text.data(), text.size(), &size);
        }
        if (status != NNEFC_OK) NNEFC_FAIL(status, std::string("the chat template: ") + error);
        text.resize(size);
        return text;
    }

private:
    Chat(std::shared_ptr<void> owner, const nnefc_chat_interface &chat) : chat_(chat), owner_(std::move(owner)) {}

    static nnefc_string viewed(const std::string &text) { return {text.data(), text.size()}; }

    nnefc_chat_interface chat_;
    std::shared_ptr<void> owner_;
};

#ifdef NNEFC_HAS_DLOPEN
// A shared library, opened at run time. It stays open as long as it or one of its sessions lives.
class Library {
public:
    static Expected<Library> load(const std::string &path) {
        Library made;
        NNEFC_TRY(made.open(path));
        return made;
    }

#ifndef NNEFC_NO_EXCEPTIONS
    explicit Library(const std::string &path) { open(path); }
#endif

    // Opens the bytes of a library, which may be freed afterwards: in memory with Linux, else by a file in $TMPDIR or /tmp.
    // A weights file must be named in the options of its sessions.
    static Expected<Library> from_memory(const void *data, std::size_t size) {
        Library made;
        const auto file = std::make_shared<const Descriptor>();
        if (file->number < 0) NNEFC_FAIL(NNEFC_OUT_OF_MEMORY, "no file for a library of " + std::to_string(size) + " bytes");
        const char *bytes = static_cast<const char *>(data);
        for (std::size_t done = 0; done < size;) {
            const auto count = ::write(file->number, bytes + done, size - done);
            if (count <= 0) NNEFC_FAIL(NNEFC_OUT_OF_MEMORY, "a library of " + std::to_string(size) + " bytes cannot be written");
            done += static_cast<std::size_t>(count);
        }
        NNEFC_TRY(made.open(file->path, file));
        return made;
    }

    const nnefc_description &description() const noexcept { return *functions_.describe(); }
    std::vector<Entry> metadata() const { return nnefc::metadata(description()); }

    Expected<Session> session(const Options &options = {}) const {
        return Session::create(functions_, options, handle_, device_, open_, cancel_, control_, selection_);
    }

    // Threads for sessions of this library and others, see Threads::create.
    Expected<std::shared_ptr<Threads>> threads(int count = 0) const { return Threads::create(threads_, count, handle_); }

    // What is given messages of the library, see nnefc_set_log; an empty one is given none. Not to be called by itself.
    using Log = std::function<void(nnefc_log_level level, std::string_view message)>;

    // From now on calls `log` with messages of all sessions of the library, up to a level, from any thread.
    Expected<void> set_log(Log log, nnefc_log_level level = NNEFC_LOG_WARNING) {
        if (set_log_ == nullptr) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "this library logs nothing");
        set_log_(nullptr, nullptr, 0);
        *log_ = std::move(log);
        if (*log_) set_log_(pass_on, log_.get(), level);
        return Expected<void>();
    }

    // The text of a language model, in libraries with a tokenizer.
    Expected<Tokenizer> tokenizer() const { return Tokenizer::create(functions_, tokenizer_, handle_); }

    // Conversations of a language model, in libraries with a chat template.
    Expected<Chat> chat() const { return Chat::create(chat_, handle_); }

private:
    Library() = default;

    static void pass_on(void *context, std::int32_t level, const char *message) {
        (*static_cast<const Log *>(context))(static_cast<nnefc_log_level>(level), message);
    }

    // A new file, which is there as long as the library is open: its path then names no other library.
    struct Descriptor {
        int number = -1;
        std::string path;
        bool is_in_folder = false;

        Descriptor() { // `number` is negative if there is none
#if defined(__linux__) && defined(MFD_CLOEXEC)
            number = memfd_create("nnefc", MFD_CLOEXEC);
            path = "/proc/self/fd/" + std::to_string(number);
#endif
            if (number < 0) {
                const char *folder = std::getenv("TMPDIR");
                path = std::string(folder != nullptr && *folder != '\0' ? folder : "/tmp") + "/nnefc-XXXXXX";
                number = mkstemp(path.data());
                is_in_folder = true;
            }
        }
        Descriptor(const Descriptor &) = delete;
        Descriptor &operator=(const Descriptor &) = delete;
        ~Descriptor() {
            if (number < 0) return;
            if (is_in_folder) unlink(path.c_str());
            ::close(number);
        }
    };

    Expected<void> open(const std::string &path, std::shared_ptr<const Descriptor> owned = nullptr) {
        const char *file = path.find('/') == std::string::npos ? nullptr : path.c_str();
        const std::string here = "./" + path; // without a slash dlopen would search the system's folders
        log_ = std::make_shared<Log>();
        void *opened = dlopen(file != nullptr ? file : here.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (opened != nullptr) set_log_ = reinterpret_cast<SetLog>(dlsym(opened, "nnefc_set_log"));
        handle_ = std::shared_ptr<void>(opened, [owned, log = log_, set_log = set_log_](void *handle) {
            if (set_log != nullptr && *log) set_log(nullptr, nullptr, 0); // the library may stay, opened by others
            if (handle != nullptr) dlclose(handle);
        });
        if (handle_ == nullptr) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, dlerror());
        NNEFC_TRY(find(path, "nnefc_describe", functions_.describe));
        NNEFC_TRY(find(path, "nnefc_create", functions_.create));
        NNEFC_TRY(find(path, "nnefc_destroy", functions_.destroy));
        NNEFC_TRY(find(path, "nnefc_run", functions_.run));
        NNEFC_TRY(find(path, "nnefc_reset", functions_.reset));
        NNEFC_TRY(find(path, "nnefc_last_error", functions_.last_error));
        NNEFC_TRY(find(path, "nnefc_status_name", functions_.status_name));
        if (dlsym(opened, "nnefc_enqueue") != nullptr) {
            NNEFC_TRY(find(path, "nnefc_enqueue", device_.enqueue));
            NNEFC_TRY(find(path, "nnefc_synchronize", device_.synchronize));
        }
        if (dlsym(opened, "nnefc_cancel") != nullptr) NNEFC_TRY(find(path, "nnefc_cancel", cancel_.cancel));
        if (dlsym(opened, "nnefc_run_async") != nullptr) {
            NNEFC_TRY(find(path, "nnefc_run_async", control_.run_async));
            NNEFC_TRY(find(path, "nnefc_time_kernels", control_.time_kernels));
            NNEFC_TRY(find(path, "nnefc_session_times", control_.session_times));
        }
        if (dlsym(opened, "nnefc_set_time_limit") != nullptr) NNEFC_TRY(find(path, "nnefc_set_time_limit", control_.set_time_limit));
        if (dlsym(opened, "nnefc_threads_create") != nullptr) {
            NNEFC_TRY(find(path, "nnefc_threads_create", threads_.create));
            NNEFC_TRY(find(path, "nnefc_threads_destroy", threads_.destroy));
            NNEFC_TRY(find(path, "nnefc_threads_count", threads_.count));
            NNEFC_TRY(find(path, "nnefc_threads_run", threads_.run));
            threads_.last_error = functions_.last_error;
            threads_.status_name = functions_.status_name;
        }
        if (dlsym(opened, "nnefc_run_sized_async") != nullptr) NNEFC_TRY(find(path, "nnefc_run_sized_async", control_.run_sized_async));
        if (dlsym(opened, "nnefc_select_outputs") != nullptr) NNEFC_TRY(find(path, "nnefc_select_outputs", selection_.select_outputs));
        if (dlsym(opened, "nnefc_tokenize") != nullptr) {
            NNEFC_TRY(find(path, "nnefc_tokenize", tokenizer_.tokenize));
            NNEFC_TRY(find(path, "nnefc_detokenize", tokenizer_.detokenize));
        }
        if (dlsym(opened, "nnefc_chat") != nullptr) NNEFC_TRY(find(path, "nnefc_chat", chat_.chat));
        const std::uint32_t version = functions_.describe()->abi_version;
        if (version == NNEFC_OPEN_ABI_VERSION) {
            NNEFC_TRY(find(path, "nnefc_resize", open_.resize));
            NNEFC_TRY(find(path, "nnefc_output_shape", open_.output_shape));
            NNEFC_TRY(find(path, "nnefc_reserve", open_.reserve));
            NNEFC_TRY(find(path, "nnefc_run_sized", open_.run_sized));
        } else if (version != NNEFC_ABI_VERSION)
            NNEFC_FAIL(NNEFC_WRONG_ABI, path + " has version " + std::to_string(version) +
                                            " of nnefc's interface, but this program knows versions " +
                                            std::to_string(NNEFC_ABI_VERSION) + " and " + std::to_string(NNEFC_OPEN_ABI_VERSION));
        return Expected<void>();
    }

    template <class Function> Expected<void> find(const std::string &path, const char *name, Function &function) {
        function = reinterpret_cast<Function>(dlsym(handle_.get(), name));
        if (function == nullptr)
            NNEFC_FAIL(NNEFC_BAD_ARGUMENT, path + " is a shared library, but not a network compiled by nnefc");
        return Expected<void>();
    }

    std::shared_ptr<void> handle_;
    nnefc_interface functions_ = {};
    nnefc_device_interface device_ = {};
    nnefc_open_interface open_ = {};
    nnefc_cancel_interface cancel_ = {};
    nnefc_control_interface control_ = {};
    nnefc_selection_interface selection_ = {};
    nnefc_tokenizer_interface tokenizer_ = {}; // null pointers for libraries without a tokenizer
    nnefc_chat_interface chat_ = {};           // likewise, without a chat template
    nnefc_threads_interface threads_ = {};     // likewise, where sessions have one thread
    using SetLog = void (*)(nnefc_log *, void *, std::int32_t);
    SetLog set_log_ = nullptr;
    std::shared_ptr<Log> log_;
};
#endif

// Sessions of one network that threads share, as many as runs go on at a time. Runs that are submitted go on in the sessions' own
// threads, by Session::run_async; of libraries without it, in as many threads of the pool.
// All functions may be called from any thread. Networks with states are refused: each session has its own.
class Pool {
public:
    using Callback = nnefc::Callback;

    // `make` makes a session; it is called `sessions` times.
    static Expected<std::unique_ptr<Pool>> create(std::size_t sessions, const std::function<Expected<Session>()> &make) {
        std::unique_ptr<Pool> made(new Pool);
        NNEFC_TRY(made->fill(sessions, make));
        return made;
    }

#ifdef NNEFC_HAS_DLOPEN
    // Each session has one thread, unless the options say otherwise.
    static Expected<std::unique_ptr<Pool>> create(const Library &library, std::size_t sessions, const Options &options = {}) {
        return create(sessions, sessions_of(library, options));
    }
#endif

#ifndef NNEFC_NO_EXCEPTIONS
    Pool(std::size_t sessions, const std::function<Session()> &make) : Pool() { fill(sessions, make); }

#ifdef NNEFC_HAS_DLOPEN
    Pool(const Library &library, std::size_t sessions, const Options &options = {}) : Pool(sessions, sessions_of(library, options)) {}
#endif
#endif

    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    // Waits for all runs, those that wait as well.
    ~Pool() { end(); }

    // Waits for a free session and calls `action` with it, in the calling thread; returns what that returns.
    template <class Action> auto with_session(Action &&action) {
        struct Lease { // gives the session back, whatever `action` throws
            Pool &pool;
            Session *session;
            ~Lease() { pool.give_back(session); }
        } lease{*this, take()};
        return action(*lease.session);
    }

    // Runs as Session::run does, and returns the outputs, whose shapes are those of this run.
    Expected<std::vector<Tensor>> run(const std::vector<Input> &inputs, const std::vector<Output> &outputs) {
        return with_session([&](Session &session) -> Expected<std::vector<Tensor>> {
            NNEFC_TRY(session.run(inputs, outputs));
            return session.outputs();
        });
    }

    template <class T> Expected<std::vector<T>> run(const std::vector<Input> &inputs) {
        return with_session([&](Session &session) { return session.run<T>(inputs); });
    }

    // Begins a run; the tensors must stay until it is over. The future throws what the run throws, or has its failure.
    std::future<Expected<std::vector<Tensor>>> submit(std::vector<Input> inputs, std::vector<Output> outputs) {
        auto promise = std::make_shared<std::promise<Expected<std::vector<Tensor>>>>();
#ifdef NNEFC_NO_EXCEPTIONS
        submit(std::move(inputs), std::move(outputs),
               [promise](Expected<std::vector<Tensor>> found) { promise->set_value(std::move(found)); });
#else
        submit(std::move(inputs), std::move(outputs), [promise](std::vector<Tensor> found, std::exception_ptr error) {
            if (error != nullptr) promise->set_exception(error);
            else promise->set_value(std::move(found));
        });
#endif
        return promise->get_future();
    }

    // The same, with a function that is called when the run is over, in another thread; it must not throw.
    void submit(std::vector<Input> inputs, std::vector<Output> outputs, Callback callback) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            runs_.push_back({std::move(inputs), std::move(outputs), std::move(callback)});
            submissions_++;
        }
        if (threads_.empty()) begin();
        else submitted_.notify_one();
    }

    // Ends the runs that are under way, which fail with NNEFC_CANCELLED; those that wait begin afterwards.
    Expected<void> cancel() {
        for (Session &session : sessions_) NNEFC_TRY(session.cancel());
        return Expected<void>();
    }

private:
    Pool() = default;

#ifdef NNEFC_HAS_DLOPEN
    // Makes sessions of a library, of one thread each where the options leave that open.
    static std::function<Expected<Session>()> sessions_of(const Library &library, Options options) {
        if (options.threads == 0 && options.shared_threads == nullptr) options.threads = 1;
        return [&library, options] { return library.session(options); };
    }
#endif

    Expected<void> fill(std::size_t sessions, const std::function<Expected<Session>()> &make) {
        if (sessions == 0) NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "a pool needs at least one session");
        for (std::size_t i = 0; i < sessions; i++) {
            NNEFC_LET(session, make());
            sessions_.push_back(std::move(session));
        }
        if (sessions_[0].description().state_count > 0)
            NNEFC_FAIL(NNEFC_BAD_ARGUMENT, "runs of a network with states depend on these, which each session has of its own");
        for (Session &session : sessions_) free_.push_back(&session);
        if (sessions_[0].can_run_async()) return Expected<void>();
        for (std::size_t i = 0; i < sessions; i++) threads_.emplace_back([this] { work(); });
        return Expected<void>();
    }

    struct Submission {
        std::vector<Input> inputs;
        std::vector<Output> outputs;
        Callback callback;
    };

    Session *take() {
        std::unique_lock<std::mutex> lock(mutex_);
        freed_.wait(lock, [this] { return !free_.empty(); });
        Session *session = free_.back();
        free_.pop_back();
        return session;
    }

    void give_back(Session *session) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            free_.push_back(session);
        }
        freed_.notify_one();
        if (threads_.empty()) begin();
    }

    // Begins the runs that wait, in the order in which they were submitted, as long as there are free sessions.
    void begin() {
        for (;;) {
            std::unique_lock<std::mutex> lock(mutex_);
            if (runs_.empty() || free_.empty()) return;
            Session *session = free_.back();
            const auto next = std::make_shared<Submission>(std::move(runs_.front()));
            free_.pop_back();
            runs_.pop_front();
            lock.unlock();
            const auto over = [this, session, next](auto... outcome) {
                give_back(session);
                finish(*next, std::move(outcome)...);
            };
#ifdef NNEFC_NO_EXCEPTIONS
            const Expected<void> begun = session->run_async(next->inputs, next->outputs, over);
            if (!begun) over(Expected<std::vector<Tensor>>(begun.error()));
#else
            try {
                session->run_async(next->inputs, next->outputs, over);
            } catch (...) {
                over(std::vector<Tensor>(), std::current_exception());
            }
#endif
        }
    }

    // Calls back with what a callback takes.
    template <class... Outcome> void finish(const Submission &submission, Outcome... outcome) {
        submission.callback(std::move(outcome)...);
        const std::lock_guard<std::mutex> lock(mutex_);
        if (--submissions_ == 0) finished_.notify_all();
    }

    // What a thread of the pool does: runs, in the order in which they were submitted, until the end.
    void work() {
        for (;;) {
            Submission next;
            {
                std::unique_lock<std::mutex> lock(mutex_);
                submitted_.wait(lock, [this] { return ends_ || !runs_.empty(); });
                if (runs_.empty()) return;
                next = std::move(runs_.front());
                runs_.pop_front();
            }
#ifdef NNEFC_NO_EXCEPTIONS
            finish(next, run(next.inputs, next.outputs));
#else
            std::vector<Tensor> found;
            std::exception_ptr error;
            try {
                found = run(next.inputs, next.outputs);
            } catch (...) {
                error = std::current_exception();
            }
            finish(next, std::move(found), error);
#endif
        }
    }

    void end() {
        {
            std::unique_lock<std::mutex> lock(mutex_);
            ends_ = true;
            if (threads_.empty()) finished_.wait(lock, [this] { return submissions_ == 0; });
        }
        submitted_.notify_all();
        for (std::thread &thread : threads_) thread.join();
    }

    std::mutex mutex_;
    std::condition_variable submitted_, freed_, finished_;
    std::size_t submissions_ = 0; // that are not over
    std::vector<Session> sessions_; // never changed: free_ points into it
    std::vector<Session *> free_;
    std::deque<Submission> runs_;
    bool ends_ = false;
    std::vector<std::thread> threads_;
};

#ifdef NNEFC_NO_EXCEPTIONS
} // namespace without_exceptions
#endif
} // namespace nnefc

#undef NNEFC_FAIL
#undef NNEFC_TRY
#undef NNEFC_LET

#endif

// nnefc.hpp - a compiled network in C++17: nnefc.h with objects that clean up after themselves, exceptions and checks.
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
#ifndef NNEFC_HPP
#define NNEFC_HPP

#include <condition_variable>
#include <cstddef>
#include <cstdint>
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
#include <vector>

#include "nnefc.h"

#if defined(__unix__) || defined(__APPLE__)
#define NNEFC_HAS_DLOPEN 1
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace nnefc {

class Error : public std::runtime_error {
public:
    Error(nnefc_status status, const std::string &message) : std::runtime_error(message), status_(status) {}

    // What a call answered; NNEFC_BAD_ARGUMENT for what was refused before a call.
    nnefc_status status() const noexcept { return status_; }

private:
    nnefc_status status_;
};

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
    std::vector<std::int64_t> shape(const Tensor &tensor) const {
        if (has_shape_) {
            if (shape_.size() != tensor.shape.size())
                throw Error(NNEFC_BAD_ARGUMENT, "input \"" + tensor.name + "\" is given a shape of " + std::to_string(shape_.size()) +
                                                    " sizes, but the network has " + std::to_string(tensor.shape.size()));
            return shape_;
        }
        std::vector<std::int64_t> found = tensor.shape;
        std::int64_t *open = nullptr;
        std::size_t known = 1;
        for (std::int64_t &size : found) {
            if (size >= 0) known *= static_cast<std::size_t>(size);
            else if (open == nullptr) open = &size;
            else throw Error(NNEFC_BAD_ARGUMENT, "input \"" + tensor.name + "\" has several dynamic sizes: give its shape, as in "
                                                     "{data, {1, 3, 224, 224}}");
        }
        if (open != nullptr && known != 0) *open = static_cast<std::int64_t>(count_ / known);
        return found;
    }

    void check_type(const Tensor &tensor, const char *role) const {
        const bool bits = type_ == NNEFC_UINT16 && (tensor.type == NNEFC_FLOAT16 || tensor.type == NNEFC_BFLOAT16);
        if (type_ != tensor.type && !bits)
            throw Error(NNEFC_BAD_ARGUMENT, std::string(role) + " \"" + tensor.name + "\" is given as " + type_name(type_) +
                                                ", but the network has " + type_name(tensor.type));
    }

    void check(const Tensor &tensor, const char *role) const {
        check_type(tensor, role);
        if (has_shape_ && shape_ != tensor.shape)
            throw Error(NNEFC_BAD_ARGUMENT, std::string(role) + " \"" + tensor.name + "\" is given another shape than the network has");
        if (count_ != tensor.elements())
            throw Error(NNEFC_BAD_ARGUMENT, std::string(role) + " \"" + tensor.name + "\" is given " + std::to_string(count_) +
                                                " elements, but the network has " + std::to_string(tensor.elements()));
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

// What is called when a run is over that goes on by itself: with the outputs and their shapes, or with what the run has thrown.
// It must not throw.
using Callback = std::function<void(std::vector<Tensor> outputs, std::exception_ptr error)>;

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
};

// A session of a network: its states, memory and threads. Can be moved, not copied; what was moved from can be destroyed or
// assigned to. One thread at a time may use it: a call during another one throws NNEFC_BUSY.
class Session {
public:
    // `owner`, if given, is kept as long as the session: what the functions live in. `device` are those of networks for GPUs:
    // NNEFC_DEVICE_INTERFACE(nnefc), `open` those of networks with dynamic sizes: NNEFC_OPEN_INTERFACE(nnefc). `cancel`, `control`
    // and `selection` are NNEFC_CANCEL_INTERFACE(nnefc), NNEFC_CONTROL_INTERFACE(nnefc), or NNEFC_OPEN_CONTROL_INTERFACE(nnefc) with
    // dynamic sizes, and NNEFC_SELECTION_INTERFACE(nnefc).
    explicit Session(const nnefc_interface &functions, const Options &options = {}, std::shared_ptr<void> owner = nullptr,
                     const nnefc_device_interface &device = {}, const nnefc_open_interface &open = {},
                     const nnefc_cancel_interface &cancel = {}, const nnefc_control_interface &control = {},
                     const nnefc_selection_interface &selection = {})
        : owner_(std::move(owner)), functions_(functions), device_(device), open_(open), cancel_(cancel), control_(control),
          selection_(selection), inputs_(tensors(functions.describe()->inputs, functions.describe()->input_count)),
          outputs_(tensors(functions.describe()->outputs, functions.describe()->output_count)) {
        if (description().abi_version == NNEFC_OPEN_ABI_VERSION && !is_open())
            throw Error(NNEFC_BAD_ARGUMENT, "the network has dynamic sizes: give the session NNEFC_OPEN_INTERFACE of its name");
        if (!options.processors.empty() && options.processors.size() != static_cast<std::size_t>(options.threads))
            throw Error(NNEFC_BAD_ARGUMENT, "processors are not as many as threads");
        const bool has_threads = !options.processors.empty() || options.parallel_for != nullptr;
        nnefc_options in_c = {};
        // what all libraries know, unless the rest is needed
        const std::size_t size = options.constants != nullptr ? sizeof in_c
                                 : has_threads ? offsetof(nnefc_options, constant_bytes)
                                 : options.keep_subnormals ? offsetof(nnefc_options, processors)
                                 : options.device != 0 ? offsetof(nnefc_options, keep_subnormals)
                                 : options.weights.empty() ? offsetof(nnefc_options, weights) : offsetof(nnefc_options, device);
        in_c.struct_size = static_cast<std::uint32_t>(size);
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
        nnefc_session *made = nullptr;
        check(functions_.create(&in_c, &made), nullptr);
        session_ = made;
    }

    Session(Session &&other) noexcept
        : owner_(std::move(other.owner_)), functions_(other.functions_), device_(other.device_), open_(other.open_), cancel_(other.cancel_),
          control_(other.control_), selection_(other.selection_), inputs_(std::move(other.inputs_)),
          outputs_(std::move(other.outputs_)), selected_(std::move(other.selected_)), session_(std::exchange(other.session_, nullptr)) {}

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
    void reserve(const std::vector<std::int64_t> &sizes = {}) {
        if (!is_open()) return;
        if (session_ == nullptr) throw Error(NNEFC_BAD_ARGUMENT, "the session was moved from");
        if (!sizes.empty() && sizes.size() != description().dimension_count)
            throw Error(NNEFC_BAD_ARGUMENT, std::to_string(sizes.size()) + " sizes are given, but the network has " +
                                                std::to_string(description().dimension_count) + " dynamic dimensions");
        check(open_.reserve(session_, sizes.empty() ? nullptr : sizes.data(), 1), session_);
    }

    // Has later runs compute these outputs only, and take memory for them in this order; without names, for all outputs again.
    void select(const std::vector<std::string> &names = {}) {
        if (session_ == nullptr) throw Error(NNEFC_BAD_ARGUMENT, "the session was moved from");
        std::vector<std::size_t> found;
        std::vector<std::uint8_t> selected(outputs_.size() + 1, names.empty());
        for (const std::string &name : names) {
            const std::size_t index = index_of(outputs_, name, "output");
            if (selected[index] != 0) throw Error(NNEFC_BAD_ARGUMENT, "the output \"" + name + "\" is selected twice");
            selected[index] = 1;
            found.push_back(index);
        }
        if (selection_.select_outputs != nullptr) check(selection_.select_outputs(session_, selected.data()), session_);
        else if (!names.empty() && found.size() < outputs_.size()) throw Error(NNEFC_BAD_ARGUMENT, "this library computes all outputs");
        selected_ = std::move(found);
    }

    // Runs the network on inputs, into outputs, both in the network's order; or into the outputs that are selected.
    void run(const std::vector<Input> &inputs, const std::vector<Output> &outputs) {
        if (is_open()) {
            std::vector<nnefc_output> found = in_c_outputs(outputs);
            run_sized(inputs, found);
            return;
        }
        const std::vector<const void *> in = checked<const void *>(inputs, inputs_, "input");
        const std::vector<void *> out = checked_outputs(outputs);
        check(functions_.run(session_, in.data(), out.data()), session_);
    }

    // Runs the network on inputs and into outputs by their names, in any order. Outputs that are not named are not computed, nor
    // by later runs: see select().
    void run_named(const std::vector<std::pair<std::string, Input>> &inputs,
                   const std::vector<std::pair<std::string, Output>> &outputs) {
        std::vector<std::string> names;
        std::vector<Output> out;
        for (const auto &[name, output] : outputs) {
            names.push_back(name);
            out.push_back(output);
        }
        std::vector<const Input *> given(inputs_.size());
        for (const auto &[name, input] : inputs) {
            const std::size_t index = index_of(inputs_, name, "input");
            if (given[index] != nullptr) throw Error(NNEFC_BAD_ARGUMENT, "the input \"" + name + "\" is given twice");
            given[index] = &input;
        }
        std::vector<Input> in;
        for (std::size_t i = 0; i < given.size(); i++) {
            if (given[i] == nullptr) throw Error(NNEFC_BAD_ARGUMENT, "the input \"" + inputs_[i].name + "\" is missing");
            in.push_back(*given[i]);
        }
        select(names);
        run(in, out);
    }

    // Begins a run and returns; `callback` is called in a thread of the session's own when it is over, and may begin the next one.
    // The tensors must stay until then, and the session where it is; calls on it throw NNEFC_BUSY meanwhile.
    void run_async(const std::vector<Input> &inputs, const std::vector<Output> &outputs, Callback callback) {
        if (!can_run_async()) throw Error(NNEFC_BAD_ARGUMENT, "this library runs in the calling thread alone");
        auto run = std::make_unique<AsyncRun>(AsyncRun{functions_, std::move(callback), outputs_, {}, {}, {}});
        nnefc_status status;
        if (is_open()) {
            fill_inputs(inputs, run->shapes, run->in);
            run->out = in_c_outputs(outputs);
            status = control_.run_sized_async(session_, run->in.data(), run->out.data(), AsyncRun::done, run.get());
        } else {
            const std::vector<const void *> in = checked<const void *>(inputs, inputs_, "input");
            const std::vector<void *> out = checked_outputs(outputs);
            status = control_.run_async(session_, in.data(), out.data(), AsyncRun::done, run.get());
        }
        check(status, session_);
        run.release(); // `done` has it
    }

    bool can_run_async() const noexcept { return is_open() ? control_.run_sized_async != nullptr : control_.run_async != nullptr; }

    // Takes the time of each kernel from now on, or no longer.
    void time_kernels(bool on) {
        if (control_.time_kernels == nullptr) throw Error(NNEFC_BAD_ARGUMENT, "this library takes no times");
        check(control_.time_kernels(session_, on), session_);
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
    template <class T> std::vector<T> run(const std::vector<Input> &inputs) {
        static_assert(!std::is_same_v<T, bool>, "std::vector<bool> holds no array: give an output of your own");
        const std::size_t wanted = selected_.size() == 1 ? selected_[0] : 0;
        const bool is_one = output_count() == 1;
        if (is_open() && is_one) {
            Output(static_cast<T *>(nullptr), 0).check_type(outputs_[wanted], "output");
            std::vector<nnefc_output> found(outputs_.size()); // in the session's memory
            run_sized(inputs, found);
            const T *first = static_cast<const T *>(found[wanted].data);
            return std::vector<T>(first, first + found[wanted].bytes / sizeof(T));
        }
        std::vector<T> result(is_one ? outputs_[wanted].elements() : 0);
        run(inputs, {result});
        return result;
    }

    // Begins a run on a GPU, whose memory all tensors are in, on a stream of CUDA's (null: the session's own), and returns.
    void enqueue(const std::vector<Input> &inputs, const std::vector<Output> &outputs, void *stream = nullptr) {
        const std::vector<const void *> in = checked<const void *>(inputs, inputs_, "input");
        const std::vector<void *> out = checked<void *>(outputs, outputs_, "output");
        check(on_device().enqueue(session_, in.data(), out.data(), stream), session_);
    }

    // Waits for the runs that were begun, and throws what they failed with.
    void synchronize() { check(on_device().synchronize(session_), session_); }

    // Ends the run that another thread is in, before its next kernel: that call throws NNEFC_CANCELLED.
    void cancel() {
        if (cancel_.cancel == nullptr) throw Error(NNEFC_BAD_ARGUMENT, "runs of this library cannot be cancelled");
        check(cancel_.cancel(session_), session_);
    }

    // Brings the states back to their initial values.
    void reset() { check(functions_.reset(session_), session_); }

private:
    void end() noexcept { // a session that was moved from may have outlived its library
        if (session_ != nullptr) functions_.destroy(session_);
    }

    static std::size_t index_of(const std::vector<Tensor> &tensors, const std::string &name, const char *role) {
        for (std::size_t i = 0; i < tensors.size(); i++)
            if (tensors[i].name == name) return i;
        throw Error(NNEFC_BAD_ARGUMENT, std::string("the network has no ") + role + " \"" + name + "\"");
    }

    static std::vector<Tensor> tensors(const nnefc_tensor *first, std::uint32_t count) {
        std::vector<Tensor> found;
        for (std::uint32_t i = 0; i < count; i++)
            found.push_back({first[i].name, static_cast<nnefc_type>(first[i].type), {first[i].shape, first[i].shape + first[i].rank}});
        return found;
    }

    template <class Pointer>
    std::vector<Pointer> checked(const std::vector<Elements<Pointer>> &given, const std::vector<Tensor> &tensors,
                                 const char *role) const {
        check_number(given.size(), tensors.size(), role);
        std::vector<Pointer> pointers;
        for (std::size_t i = 0; i < given.size(); i++) {
            given[i].check(tensors[i], role);
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
            if (status == NNEFC_OK) return run->callback(std::move(run->outputs), nullptr);
            run->callback({}, std::make_exception_ptr(failure(run->functions, status, error)));
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

    std::vector<void *> checked_outputs(const std::vector<Output> &given) const {
        check_number(given.size(), output_count(), "output");
        std::vector<void *> pointers(outputs_.size());
        for (std::size_t i = 0; i < given.size(); i++) {
            given[i].check(outputs_[selected(i)], "output");
            pointers[selected(i)] = given[i].data();
        }
        return pointers;
    }

    bool is_open() const noexcept { return open_.run_sized != nullptr; }

    // Runs a network with dynamic sizes.
    void run_sized(const std::vector<Input> &inputs, std::vector<nnefc_output> &outputs) {
        std::vector<std::vector<std::int64_t>> shapes;
        std::vector<nnefc_input> in;
        fill_inputs(inputs, shapes, in);
        const nnefc_status status = open_.run_sized(session_, in.data(), outputs.data());
        AsyncRun::take_shapes(outputs_, outputs, functions_);
        check(status, session_);
    }

    // The inputs of a run with dynamic sizes; `in` points into `shapes`.
    void fill_inputs(const std::vector<Input> &inputs, std::vector<std::vector<std::int64_t>> &shapes, std::vector<nnefc_input> &in) const {
        check_number(inputs.size(), inputs_.size(), "input");
        for (std::size_t i = 0; i < inputs.size(); i++) {
            inputs[i].check_type(inputs_[i], "input");
            shapes.push_back(inputs[i].shape(inputs_[i]));
            in.push_back({inputs[i].data(), inputs[i].bytes(), nullptr});
        }
        for (std::size_t i = 0; i < inputs.size(); i++) in[i].shape = shapes[i].data();
    }

    // The caller's memory for outputs; where there is none, room for nothing.
    std::vector<nnefc_output> in_c_outputs(const std::vector<Output> &outputs) const {
        static char nothing;
        check_number(outputs.size(), output_count(), "output");
        std::vector<nnefc_output> found(outputs_.size());
        for (std::size_t i = 0; i < outputs.size(); i++) {
            outputs[i].check_type(outputs_[selected(i)], "output");
            void *memory = outputs[i].data() != nullptr ? outputs[i].data() : &nothing;
            found[selected(i)] = {memory, outputs[i].bytes(), nullptr, 0, nullptr};
        }
        return found;
    }

    void check_number(std::size_t given, std::size_t wanted, const char *role) const {
        if (session_ == nullptr) throw Error(NNEFC_BAD_ARGUMENT, "the session was moved from");
        if (given != wanted)
            throw Error(NNEFC_BAD_ARGUMENT, std::to_string(given) + " " + role + "s are given, but the " +
                                                (wanted == selected_.size() && *role == 'o' ? "selection" : "network") + " has " +
                                                std::to_string(wanted));
    }

    const nnefc_device_interface &on_device() const {
        if (device_.enqueue == nullptr) throw Error(NNEFC_BAD_ARGUMENT, "the network does not run on a GPU");
        return device_;
    }

    void check(nnefc_status status, const nnefc_session *session) const {
        if (status == NNEFC_OK) return;
        throw failure(functions_, status, status == NNEFC_BUSY ? "" : functions_.last_error(session)); // it belongs to the other call
    }

    std::shared_ptr<void> owner_; // first, so that it is destroyed last
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
inline Session linked(const Options &options = {}) {
    static const nnefc_interface functions = NNEFC_INTERFACE(nnefc);
    return Session(functions, options);
}

// The text of a language model: tokens of a text, and back. All functions may be called from any thread.
class Tokenizer {
public:
    Tokenizer(const nnefc_interface &functions, const nnefc_tokenizer_interface &tokenizer, std::shared_ptr<void> owner = nullptr)
        : functions_(functions), tokenizer_(tokenizer), owner_(std::move(owner)) {
        if (tokenizer.tokenize == nullptr) throw Error(NNEFC_BAD_ARGUMENT, "this library has no tokenizer");
    }

    // The tokens of a text in UTF-8. `flags`: NNEFC_WITH_BEGIN_AND_END, NNEFC_FIND_CONTROL.
    std::vector<std::int64_t> tokenize(const std::string &text, std::uint32_t flags = NNEFC_WITH_BEGIN_AND_END) const {
        std::vector<std::int64_t> tokens(text.size() / 2 + 16);
        std::size_t count = 0;
        nnefc_status status = tokenizer_.tokenize(text.data(), text.size(), flags, tokens.data(), tokens.size(), &count);
        if (status == NNEFC_TOO_SMALL) {
            tokens.resize(count);
            status = tokenizer_.tokenize(text.data(), text.size(), flags, tokens.data(), tokens.size(), &count);
        }
        check(status);
        tokens.resize(count);
        return tokens;
    }

    // The text of tokens in UTF-8; its end may be a part of a character. `flags`: NNEFC_SKIP_CONTROL, NNEFC_CONTINUES.
    std::string detokenize(const std::vector<std::int64_t> &tokens, std::uint32_t flags = NNEFC_SKIP_CONTROL) const {
        std::string text(8 * tokens.size() + 16, '\0');
        std::size_t size = 0;
        nnefc_status status = tokenizer_.detokenize(tokens.data(), tokens.size(), flags, text.data(), text.size(), &size);
        if (status == NNEFC_TOO_SMALL) {
            text.resize(size);
            status = tokenizer_.detokenize(tokens.data(), tokens.size(), flags, text.data(), text.size(), &size);
        }
        check(status);
        text.resize(size);
        return text;
    }

private:
    void check(nnefc_status status) const {
        if (status != NNEFC_OK) throw Error(status, std::string("the tokenizer: ") + functions_.status_name(status));
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
    explicit Chat(const nnefc_chat_interface &chat, std::shared_ptr<void> owner = nullptr) : chat_(chat), owner_(std::move(owner)) {
        if (chat.chat == nullptr) throw Error(NNEFC_BAD_ARGUMENT, "this library has no chat template");
    }

    // The text of a conversation, to be tokenized with NNEFC_FIND_CONTROL alone.
    std::string text(const std::vector<Message> &messages, const ChatOptions &given = {}) const {
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
        if (status != NNEFC_OK) throw Error(status, std::string("the chat template: ") + error);
        text.resize(size);
        return text;
    }

private:
    static nnefc_string viewed(const std::string &text) { return {text.data(), text.size()}; }

    nnefc_chat_interface chat_;
    std::shared_ptr<void> owner_;
};

#ifdef NNEFC_HAS_DLOPEN
// A shared library, opened at run time. It stays open as long as it or one of its sessions lives.
class Library {
public:
    explicit Library(const std::string &path) { open(path); }

    // Opens the bytes of a library, which may be freed afterwards: in memory with Linux, else by a file in $TMPDIR or /tmp.
    // A weights file must be named in the options of its sessions.
    static Library from_memory(const void *data, std::size_t size) {
        Library made;
        const auto file = std::make_shared<const Descriptor>(size);
        const char *bytes = static_cast<const char *>(data);
        for (std::size_t done = 0; done < size;) {
            const auto count = ::write(file->number, bytes + done, size - done);
            if (count <= 0) throw Error(NNEFC_OUT_OF_MEMORY, "a library of " + std::to_string(size) + " bytes cannot be written");
            done += static_cast<std::size_t>(count);
        }
        made.open(file->path, file);
        return made;
    }

    const nnefc_description &description() const noexcept { return *functions_.describe(); }
    std::vector<Entry> metadata() const { return nnefc::metadata(description()); }

    Session session(const Options &options = {}) const {
        return Session(functions_, options, handle_, device_, open_, cancel_, control_, selection_);
    }

    // What is given messages of the library, see nnefc_set_log; an empty one is given none. Not to be called by itself.
    using Log = std::function<void(nnefc_log_level level, std::string_view message)>;

    // From now on calls `log` with messages of all sessions of the library, up to a level, from any thread.
    void set_log(Log log, nnefc_log_level level = NNEFC_LOG_WARNING) {
        if (set_log_ == nullptr) throw Error(NNEFC_BAD_ARGUMENT, "this library logs nothing");
        set_log_(nullptr, nullptr, 0);
        *log_ = std::move(log);
        if (*log_) set_log_(pass_on, log_.get(), level);
    }

    // The text of a language model, in libraries with a tokenizer.
    Tokenizer tokenizer() const { return Tokenizer(functions_, tokenizer_, handle_); }

    // Conversations of a language model, in libraries with a chat template.
    Chat chat() const { return Chat(chat_, handle_); }

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

        explicit Descriptor(std::size_t size) {
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
            if (number < 0) throw Error(NNEFC_OUT_OF_MEMORY, "no file for a library of " + std::to_string(size) + " bytes");
        }
        Descriptor(const Descriptor &) = delete;
        Descriptor &operator=(const Descriptor &) = delete;
        ~Descriptor() {
            if (is_in_folder) unlink(path.c_str());
            ::close(number);
        }
    };

    void open(const std::string &path, std::shared_ptr<const Descriptor> owned = nullptr) {
        const char *file = path.find('/') == std::string::npos ? nullptr : path.c_str();
        const std::string here = "./" + path; // without a slash dlopen would search the system's folders
        log_ = std::make_shared<Log>();
        void *opened = dlopen(file != nullptr ? file : here.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (opened != nullptr) set_log_ = reinterpret_cast<SetLog>(dlsym(opened, "nnefc_set_log"));
        handle_ = std::shared_ptr<void>(opened, [owned, log = log_, set_log = set_log_](void *handle) {
            if (set_log != nullptr && *log) set_log(nullptr, nullptr, 0); // the library may stay, opened by others
            if (handle != nullptr) dlclose(handle);
        });
        if (handle_ == nullptr) throw Error(NNEFC_BAD_ARGUMENT, dlerror());
        find(path, "nnefc_describe", functions_.describe);
        find(path, "nnefc_create", functions_.create);
        find(path, "nnefc_destroy", functions_.destroy);
        find(path, "nnefc_run", functions_.run);
        find(path, "nnefc_reset", functions_.reset);
        find(path, "nnefc_last_error", functions_.last_error);
        find(path, "nnefc_status_name", functions_.status_name);
        if (dlsym(handle_.get(), "nnefc_enqueue") != nullptr) {
            find(path, "nnefc_enqueue", device_.enqueue);
            find(path, "nnefc_synchronize", device_.synchronize);
        }
        if (dlsym(handle_.get(), "nnefc_cancel") != nullptr) find(path, "nnefc_cancel", cancel_.cancel);
        if (dlsym(handle_.get(), "nnefc_run_async") != nullptr) {
            find(path, "nnefc_run_async", control_.run_async);
            find(path, "nnefc_time_kernels", control_.time_kernels);
            find(path, "nnefc_session_times", control_.session_times);
        }
        if (dlsym(handle_.get(), "nnefc_run_sized_async") != nullptr) find(path, "nnefc_run_sized_async", control_.run_sized_async);
        if (dlsym(handle_.get(), "nnefc_select_outputs") != nullptr) find(path, "nnefc_select_outputs", selection_.select_outputs);
        if (dlsym(handle_.get(), "nnefc_tokenize") != nullptr) {
            find(path, "nnefc_tokenize", tokenizer_.tokenize);
            find(path, "nnefc_detokenize", tokenizer_.detokenize);
        }
        if (dlsym(handle_.get(), "nnefc_chat") != nullptr) find(path, "nnefc_chat", chat_.chat);
        const std::uint32_t version = functions_.describe()->abi_version;
        if (version == NNEFC_OPEN_ABI_VERSION) {
            find(path, "nnefc_resize", open_.resize);
            find(path, "nnefc_output_shape", open_.output_shape);
            find(path, "nnefc_reserve", open_.reserve);
            find(path, "nnefc_run_sized", open_.run_sized);
        } else if (version != NNEFC_ABI_VERSION)
            throw Error(NNEFC_WRONG_ABI, path + " has version " + std::to_string(version) +
                                             " of nnefc's interface, but this program knows versions " +
                                             std::to_string(NNEFC_ABI_VERSION) + " and " + std::to_string(NNEFC_OPEN_ABI_VERSION));
    }

    template <class Function> void find(const std::string &path, const char *name, Function &function) {
        function = reinterpret_cast<Function>(dlsym(handle_.get(), name));
        if (function == nullptr)
            throw Error(NNEFC_BAD_ARGUMENT, path + " is a shared library, but not a network compiled by nnefc");
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
    Pool(std::size_t sessions, const std::function<Session()> &make) {
        if (sessions == 0) throw Error(NNEFC_BAD_ARGUMENT, "a pool needs at least one session");
        for (std::size_t i = 0; i < sessions; i++) sessions_.push_back(make());
        if (sessions_[0].description().state_count > 0)
            throw Error(NNEFC_BAD_ARGUMENT, "runs of a network with states depend on these, which each session has of its own");
        for (Session &session : sessions_) free_.push_back(&session);
        if (sessions_[0].can_run_async()) return;
        try {
            for (std::size_t i = 0; i < sessions; i++) threads_.emplace_back([this] { work(); });
        } catch (...) {
            end();
            throw;
        }
    }

#ifdef NNEFC_HAS_DLOPEN
    // Each session has one thread, unless the options say otherwise.
    Pool(const Library &library, std::size_t sessions, Options options = {})
        : Pool(sessions, [&library, options] {
              Options own = options;
              if (own.threads == 0) own.threads = 1;
              return library.session(own);
          }) {}
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
    std::vector<Tensor> run(const std::vector<Input> &inputs, const std::vector<Output> &outputs) {
        return with_session([&](Session &session) {
            session.run(inputs, outputs);
            return session.outputs();
        });
    }

    template <class T> std::vector<T> run(const std::vector<Input> &inputs) {
        return with_session([&](Session &session) { return session.run<T>(inputs); });
    }

    // Begins a run; the tensors must stay until it is over. The future throws what the run throws.
    std::future<std::vector<Tensor>> submit(std::vector<Input> inputs, std::vector<Output> outputs) {
        auto promise = std::make_shared<std::promise<std::vector<Tensor>>>();
        submit(std::move(inputs), std::move(outputs), [promise](std::vector<Tensor> found, std::exception_ptr error) {
            if (error != nullptr) promise->set_exception(error);
            else promise->set_value(std::move(found));
        });
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

    // Ends the runs that are under way, which throw NNEFC_CANCELLED; those that wait begin afterwards.
    void cancel() {
        for (Session &session : sessions_) session.cancel();
    }

private:
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
            const auto over = [this, session, next](std::vector<Tensor> found, std::exception_ptr error) {
                give_back(session);
                finish(*next, std::move(found), error);
            };
            try {
                session->run_async(next->inputs, next->outputs, over);
            } catch (...) {
                over({}, std::current_exception());
            }
        }
    }

    void finish(const Submission &submission, std::vector<Tensor> found, std::exception_ptr error) {
        submission.callback(std::move(found), error);
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
            std::vector<Tensor> found;
            std::exception_ptr error;
            try {
                found = run(next.inputs, next.outputs);
            } catch (...) {
                error = std::current_exception();
            }
            finish(next, std::move(found), error);
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

} // namespace nnefc

#endif

// The machine under emulator.h: blocks one after another, the threads of a block as fibers of one thread of the machine.
//
// A fiber runs until it ends or waits at a barrier or for its warp; then the scheduler takes the next. In a checked build the
// compiler calls this file before each access to memory (the hooks of its thread sanitizer), which finds accesses outside of
// the buffers that the launch was given, and pairs of accesses to one position, one of them a write, by threads that nothing
// orders: same block without a barrier between, or different blocks without fences and an atomic operation between. Threads
// that write what is already there do no harm and are not reported. An error ends the launch and is kept for emulator_error().
#include "machine.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
char *emulator_dynamic_shared;

extern "C" char __ehdr_start __attribute__((visibility("hidden"))), _end __attribute__((visibility("hidden")));  // of the linker

namespace {

constexpr size_t STACK = 256 << 10, GUARD = 64 << 10;
constexpr unsigned MAX_THREADS = 1024, MAX_STATIC_SHARED = 48 << 10, MAX_SHARED = 227 << 10, MAX_RANGES = 4096;

// ---- fibers -----------------------------------------------------------------------------------------------------------

#if defined(__x86_64__)
// Saves what the System V calling convention lets a function keep, changes stacks, and restores the same.
__asm__(
    ".text\n.p2align 4\n.type emulator_switch,@function\nemulator_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  retq\n");
extern "C" void emulator_switch(void **save, void *to) __attribute__((visibility("hidden")));
struct Context { void *stack; };
void change(Context &from, Context &to) { emulator_switch(&from.stack, to.stack); }
void prepare(Context &context, char *top, void (*entry)()) {
  uint64_t *stack = (uint64_t *)((uintptr_t)top & ~(uintptr_t)15);
  *--stack = 0;  // where a return address would be: entry starts as if called
  *--stack = (uint64_t)entry;
  for (int i = 0; i < 6; ++i) *--stack = 0;
  context.stack = stack;
}
#elif defined(__aarch64__)
__asm__(
    ".text\n.p2align 4\n.type emulator_switch,%function\nemulator_switch:\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n  stp x25, x26, [sp, #48]\n"
    "  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
    "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n  ldp x25, x26, [sp, #48]\n"
    "  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n  add sp, sp, #160\n  ret\n");
extern "C" void emulator_switch(void **save, void *to) __attribute__((visibility("hidden")));
struct Context { void *stack; };
void change(Context &from, Context &to) { emulator_switch(&from.stack, to.stack); }
void prepare(Context &context, char *top, void (*entry)()) {
  uint64_t *stack = (uint64_t *)((uintptr_t)top & ~(uintptr_t)15) - 20;
  memset(stack, 0, 160);
  stack[11] = (uint64_t)entry;  // x30
  context.stack = stack;
}
#else
#include <ucontext.h>
typedef ucontext_t Context;
void change(Context &from, Context &to) { swapcontext(&from, &to); }
void prepare(Context &context, char *top, void (*entry)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = top - STACK + GUARD;
  context.uc_stack.ss_size = STACK - GUARD;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
}
#endif

// ---- the state of a launch --------------------------------------------------------------------------------------------

enum State : uint8_t { READY, AT_BARRIER, AT_MBARRIER, AT_REGISTERS, AT_CLUSTER, AT_PAIR, IN_WARP, IN_WARPGROUP, ENDED };
enum Operation : uint8_t { WARP_BARRIER, ACTIVE, BALLOT, SHUFFLE, GATHER };
const char *const OPERATIONS[] = {"__syncwarp", "__activemask", "__ballot_sync", "a shuffle", "a matrix operation"};

struct Copy {  // one that has been started
  char *to;
  unsigned bytes, group;
  unsigned char data[16];
};

constexpr unsigned WARPGROUP = 128, ROWS = 64, MAX_COLUMNS = 256, DEPTHS = 16;  // depths of two bytes: 16-bit floats, or pairs of bytes; of TF32, two for each

struct Layout {  // of an operand in shared memory, in bytes; vectors of 16 bytes of a row
  unsigned start, leading, stride, vectors;
};
struct Matrices {  // the operands of a wgmma: matrix descriptors, and whether their rows are depths
  uint64_t left, right;
  unsigned columns;
  bool left_by_depths, right_by_depths;
  emulator_kind kind;
  bool adds, left_in_registers;
};
constexpr unsigned FRAGMENT = 4;  // registers of a thread with its part of a left operand
struct Fragment {  // that a wgmma on its way reads
  const void *registers[FRAGMENT];
  uint32_t values[FRAGMENT];
  unsigned group;
};
struct Products {  // accumulators that wgmma instructions on their way write
  void *registers[MAX_COLUMNS / 2];
  uint32_t values[MAX_COLUMNS / 2];  // the bits of float32 or int32
  unsigned count, group;
};
struct Reads {  // what a wgmma on its way has read
  Matrices matrices;
  unsigned group;
  uint16_t *elements;
};

struct Thread {
  Context context;
  uint3 index;
  State state;
  Operation operation;
  int line, source;
  unsigned mask, warp_time;
  uint64_t value, result;
  const void *own;  // of GATHER
  size_t bytes;
  char *all;
  uint32_t fence_epoch;      // of its last fence
  const volatile void *met;  // where it has met other blocks by an atomic operation
  Copy *copies;  // of which the first `copy_count` are on their way, oldest first
  unsigned copy_count, copy_space, groups;
  unsigned fences, ordered_fences;  // fence.proxy.async so far, and before the last barrier
  bool begun;                       // wgmma.fence since the last wait
  Matrices matrices;                // of IN_WARPGROUP
  Products *products;
  Reads *reads;  // of those that this thread was the last to reach
  uint32_t fragment[FRAGMENT];  // of IN_WARPGROUP
  Fragment *fragments;
  unsigned fragment_count, fragment_space;
  unsigned product_count, product_space, product_groups, read_count, read_space;
  unsigned first_operand;  // of those that it may not have waited for
};

struct Access {  // the last one of its kind to a word of memory
  uint32_t epoch, warp_time, block;
  uint16_t thread;
  uint8_t bytes;   // which of the word's four
  uint8_t spread;  // one thread, several of a warp, several of a block, several blocks
  uint32_t fences;  // of the thread, then
  uint32_t clock;   // the same
};
struct Word {
  Access write, read;
  Word *parts;  // the same of each byte, once some of the four were accessed alone
};

struct Range {
  char *begin, *end;
  Word *words;
  const char *name;
  bool writable;
};

// The epochs in which a block wrote what it has released by an atomic operation.
struct Release {
  const volatile void *address;
  uint32_t begin, end;
};

struct Pending {  // a write to a position that another thread has just written or read: safe if it changes nothing
  char *address;
  unsigned bytes;
  unsigned char before[16];
  const Range *range;
  Access other;
  bool other_writes;
  unsigned thread;
};

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
char *stacks;
Context scheduler;
Thread threads[MAX_THREADS];  // of a block, or of the blocks of a cluster
unsigned order[MAX_THREADS];
unsigned count, current;
const emulator_kernel *kernel;
void **kernel_arguments;
bool running, failed, have_error;
char error[1024];
unsigned seed;
Range ranges[MAX_RANGES];
unsigned range_count;
Range static_shared, dynamic_shared;
char *dynamic_memory;  // of all blocks of a cluster
uint32_t epoch = 1, last_epoch = 1, launch_epoch, block_epoch, block_number;
Pending pending;
Release *releases;  // of all blocks of the launch, in the order of their epochs
unsigned release_count, release_space;
const volatile void *acquired;  // where the block has found out what others had released there
uint32_t acquired_epoch;
unsigned acquired_thread;

bool has_barriers;  // in this block, mbarriers: see bulk_copies.h
bool knows(unsigned thread, unsigned other, uint32_t clock);
uint32_t own_clock();
void meet(const unsigned *met, unsigned number);
void check_generic(char *at, size_t bytes, bool writes);

unsigned linear(const uint3 &index) { return index.x + blockDim.x * (index.y + blockDim.y * index.z); }

void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void say(const char *format, ...) {
  if (have_error) return;  // the first error is the cause
  have_error = true;
  int used = snprintf(error, sizeof error, "kernel %s: ", kernel ? kernel->name : "?");
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error + used, sizeof error - (size_t)used, format, arguments);
  va_end(arguments);
}

void pause_thread() {
  unsigned self = current;
  change(threads[self].context, scheduler);
}

[[noreturn]] void stop() {
  failed = true;
  pause_thread();
  abort();
}

#include "clusters.h"

// ---- races and bounds -------------------------------------------------------------------------------------------------

// Whether an access of another block comes before what the current thread does: that block has released it, and this one acquired.
bool is_before(const Access &access) {
  if (!acquired || (epoch == acquired_epoch && current != acquired_thread)) return false;
  for (unsigned i = 0; i < release_count; ++i)
    if (releases[i].address == acquired && access.epoch >= releases[i].begin && access.epoch < releases[i].end) return true;
  return false;
}

// `since` is the epoch of the launch's begin, for shared memory of the block's: what happened before does not count.
bool conflicts(const Access &access, unsigned bytes, uint32_t since) {
  if (access.epoch < since || !(access.bytes & bytes)) return false;
  if (access.spread == 3) return true;
  if (access.block != block_number) return !is_before(access);
  if (access.epoch != epoch) return false;
  if (has_barriers && !access.spread && knows(current, access.thread, access.clock)) return false;
  if (access.spread == 2 || access.thread / 32u != current / 32u) return true;
  if (access.warp_time < threads[current].warp_time) return false;
  return access.spread == 1 || access.thread != current;
}

void record(Access &access, unsigned bytes, uint32_t since) {
  uint32_t time = threads[current].warp_time;
  bool live = access.epoch >= since;
  uint8_t spread = 0;
  if (live && access.spread == 3) spread = 3;
  else if (live && access.block != block_number) spread = 3;
  else if (live && access.epoch == epoch && (access.spread || access.thread != current)) {
    if (access.spread == 2 || access.thread / 32u != current / 32u) spread = 2;
    else if (access.warp_time >= time) spread = 1;
  } else if (live && access.epoch == epoch) {
    bytes |= access.bytes;
  }
  if (spread) bytes |= access.bytes;
  access = {epoch, time, block_number, (uint16_t)current, (uint8_t)bytes, spread, threads[current].fences, own_clock()};
}

void say_race(const Range &range, const char *address, size_t bytes, bool writes, unsigned thread, const Access &other,
              bool other_writes) {
  const uint3 &index = threads[thread].index, &old = threads[other.thread].index;
  say("race: thread (%u, %u, %u) of block (%u, %u, %u) %s %zu bytes at byte %td of %s, which %s (%u, %u, %u)%s %s with no barrier "
      "between",
      index.x, index.y, index.z, blockIdx.x, blockIdx.y, blockIdx.z, writes ? "writes" : "reads", bytes, address - range.begin,
      range.name, other.spread ? "several threads, one of them" : "thread", old.x, old.y, old.z,
      other.spread == 3 || other.block != block_number ? " of another block" : "", other_writes ? "wrote" : "read");
}

// Whether the last write to a position that others had touched changed it; called before anything else is accessed.
void settle() {
  if (!pending.address) return;
  char *address = pending.address;
  pending.address = nullptr;
  if (memcmp(address, pending.before, pending.bytes) == 0) return;
  say_race(*pending.range, address, pending.bytes, true, pending.thread, pending.other, pending.other_writes);
  failed = true;
}

void trace(Range &range, char *address, size_t bytes, bool writes) {
  if (!range.words) range.words = (Word *)calloc((size_t)(range.end - range.begin) / 4 + 1, sizeof(Word));
  size_t first = (size_t)(address - range.begin), last = first + bytes;
  const uint32_t since = &range == &static_shared || &range == &dynamic_shared ? block_epoch : launch_epoch;
  const Access *hit = nullptr;
  bool hit_writes = false;
  auto visit = [&](Word &cell, unsigned touched) {
    if (conflicts(cell.write, touched, since)) hit = &cell.write, hit_writes = true;
    else if (writes && conflicts(cell.read, touched, since)) hit = &cell.read, hit_writes = false;
    if (hit && !writes) return;
    if (hit && bytes <= sizeof pending.before && !pending.address) {
      pending = {address, (unsigned)bytes, {}, &range, *hit, hit_writes, current};
      memcpy(pending.before, address, bytes);
    }
    hit = nullptr;
    record(writes ? cell.write : cell.read, touched, since);
  };
  for (size_t word = first / 4; word * 4 < last && !hit; ++word) {
    unsigned touched = 0;
    for (size_t byte = 0; byte < 4; ++byte)
      if (word * 4 + byte >= first && word * 4 + byte < last) touched |= 1u << byte;
    Word &cell = range.words[word];
    if (touched != 15 && !cell.parts) {
      cell.parts = (Word *)malloc(4 * sizeof(Word));
      for (size_t byte = 0; byte < 4; ++byte) cell.parts[byte] = {cell.write, cell.read, nullptr};
    }
    if (!cell.parts) visit(cell, touched);
    for (size_t byte = 0; cell.parts && byte < 4 && !hit; ++byte)
      if (touched >> byte & 1) visit(cell.parts[byte], 1u << byte);
  }
  if (hit) {
    say_race(range, address, bytes, writes, current, *hit, hit_writes);
    stop();
  }
}

bool within(const Range &range, const char *address) { return address >= range.begin && address < range.end; }

void access(char *address, size_t bytes, bool writes, bool recorded) {
  if (!running) return;
  settle();
  if (failed) stop();
  if (address >= stacks && address < stacks + STACK * MAX_THREADS) return;
  Range *found = nullptr;
  if (within(static_shared, address)) found = &static_shared;
  else if (within(dynamic_shared, address)) found = &dynamic_shared;
  else
    for (unsigned i = 0; i < range_count && !found; ++i)
      if (within(ranges[i], address)) found = &ranges[i];
  const uint3 &index = threads[current].index;
  if (found && address + bytes <= found->end && (found->writable || !writes)) {
    if (recorded && has_barriers && (found == &static_shared || found == &dynamic_shared)) check_generic(address, bytes, writes);
    if (recorded) trace(*found, address, bytes, writes);
    return;
  }
  if (!found && !range_count) return;                               // no caller declared the memory
  if (!found && !writes && address >= &__ehdr_start && address < &_end) return;  // constants of the source
  if (found && address + bytes <= found->end) {
    say("thread (%u, %u, %u) of block (%u, %u, %u) writes to %s, which is read-only", index.x, index.y, index.z, blockIdx.x,
        blockIdx.y, blockIdx.z, found->name);
    stop();
  }
  const Range *nearest = nullptr;
  size_t distance = SIZE_MAX;
  auto consider = [&](const Range &range) {
    if (range.begin == range.end) return;
    size_t here = address < range.begin ? (size_t)(range.begin - address) : (size_t)(address - range.begin);
    if (here < distance) distance = here, nearest = &range;
  };
  for (unsigned i = 0; i < range_count; ++i) consider(ranges[i]);
  consider(static_shared);
  consider(dynamic_shared);
  say("thread (%u, %u, %u) of block (%u, %u, %u) %s %zu bytes outside of all buffers, at byte %td of %s, which has %td", index.x,
      index.y, index.z, blockIdx.x, blockIdx.y, blockIdx.z, writes ? "writes" : "reads", bytes,
      nearest ? address - nearest->begin : 0, nearest ? nearest->name : "none", nearest ? nearest->end - nearest->begin : 0);
  stop();
}

// Shared memory has addresses from 1024 on; the static arrays come first, dynamic memory is no better aligned than declared.
ptrdiff_t dynamic_begin() {
  ptrdiff_t alignment = kernel->alignment, end = 1024 + (static_shared.end - static_shared.begin);
  ptrdiff_t begin = (end + alignment - 1) / alignment * alignment;
  return begin / alignment % 2 ? begin : begin + alignment;
}

void *shared_address(unsigned address) {
  const unsigned rank = address >> RANK_SHIFT, offset = address & OFFSET_MASK;
  ptrdiff_t fixed = (ptrdiff_t)offset - 1024, dynamic = (ptrdiff_t)offset - dynamic_begin();
  if (rank < cluster && fixed >= 0 && fixed < static_shared.end - static_shared.begin)
    return (rank == own_rank ? static_shared.begin : blocks[rank].arrays) + fixed;
  if (rank < cluster && dynamic >= 0 && dynamic < dynamic_shared.end - dynamic_shared.begin)
    return dynamic_memory + rank * MAX_SHARED + dynamic;
  emulator_fail("assembly uses an address outside of shared memory");
}

#include "bulk_copies.h"
#include "registers.h"

// Reports a write that a product of matrices need not see: its thread executed no fence.proxy.async after it, or no barrier after that.
void check_fenced(const char *address, size_t bytes, unsigned rank) {
  const bool own = rank == own_rank;
  const Range &fixed = own ? static_shared : blocks[rank].static_shared;
  const Range &range = own && within(fixed, address) ? fixed : own ? dynamic_shared : blocks[rank].dynamic_shared;
  if (!range.words) return;
  auto check = [&](const Access &write) {
    if (write.epoch < (own ? block_epoch : blocks[rank].begin)) return;
    const Thread &writer = threads[write.thread];
    const bool is_known = own || knows(current, write.thread, write.clock);
    if (is_known && (write.thread / 32u == current / 32u ? writer.fences : writer.ordered_fences) > write.fences) return;
    say("a product of thread (%u, %u, %u) of block (%u, %u, %u) reads byte %td of %s, which thread (%u, %u, %u) wrote with no "
        "fence.proxy.async and barrier between",
        threads[current].index.x, threads[current].index.y, threads[current].index.z, blockIdx.x, blockIdx.y, blockIdx.z,
        address - range.begin, range.name, writer.index.x, writer.index.y, writer.index.z);
    stop();
  };
  for (size_t word = (size_t)(address - range.begin) / 4; word * 4 < (size_t)(address - range.begin) + bytes; ++word) {
    check(range.words[word].write);
    for (int byte = 0; range.words[word].parts && byte < 4; ++byte) check(range.words[word].parts[byte].write);
  }
}

// The elements of an operand, 16 depths of each position, from where a matrix descriptor says they are (PTX manual,
// "Asynchronous Warpgroup Level Matrix Shared Memory Layout"): rows of 128, 64 or 32 bytes, swizzled by their addresses, or
// of 16 bytes, which are not. `check` gets the address of each vector of 16 bytes, and where it is.
template <typename F>
void gather_matrix(const Layout &layout, bool by_depths, unsigned positions, uint16_t *elements, F check) {
  const unsigned rows = by_depths ? DEPTHS : positions, vectors = by_depths ? positions / 8 : DEPTHS / 8, width = layout.vectors;
  for (unsigned row = 0; row < rows; ++row)
    for (unsigned vector = 0; vector < vectors; ++vector) {
      unsigned address = layout.start + row / 8 * layout.stride + row % 8 * width * 16 + vector % width * 16 +
                         vector / width * layout.leading;
      address ^= (address >> 7 & (width - 1)) << 4;
      char *from = (char *)shared_address(address);
      check(address, from);
      for (unsigned i = 0; i < 8; ++i) {
        uint16_t &element = by_depths ? elements[(8 * vector + i) * DEPTHS + row] : elements[row * DEPTHS + 8 * vector + i];
        memcpy(&element, from + 2 * i, 2);
      }
    }
}

Layout warpgroup_layout(uint64_t descriptor, bool by_depths) {
  const unsigned mode = (unsigned)(descriptor >> 62);
  if ((!mode && by_depths) || (descriptor >> 49 & 7))
    emulator_fail("a matrix descriptor without swizzle of rows of depths, or with a base offset, is not emulated");
  return {(unsigned)(descriptor & 0x3fff) << 4 | own_rank << RANK_SHIFT, (unsigned)(descriptor >> 16 & 0x3fff) << 4,
          (unsigned)(descriptor >> 32 & 0x3fff) << 4, mode ? 16u >> mode : 1};
}

template <typename F> void gather_operands(const Matrices &matrices, uint16_t *elements, F check) {
  if (!matrices.left_in_registers)
    gather_matrix(warpgroup_layout(matrices.left, matrices.left_by_depths), matrices.left_by_depths, ROWS, elements, check);
  gather_matrix(warpgroup_layout(matrices.right, matrices.right_by_depths), matrices.right_by_depths, matrices.columns, elements + ROWS * DEPTHS, check);
}

constexpr unsigned GROUPS = MAX_THREADS / WARPGROUP;
float left_values[GROUPS][2 * ROWS * DEPTHS], right_values[GROUPS][2 * MAX_COLUMNS * DEPTHS];
int left_bytes[GROUPS][2 * ROWS * DEPTHS], right_bytes[GROUPS][2 * MAX_COLUMNS * DEPTHS];

bool has_bytes(emulator_kind kind) { return kind >= emulator_s8_s8 && kind <= emulator_u8_u8; }
bool has_float8(emulator_kind kind) { return kind > emulator_u8_u8 && kind < emulator_tf32; }

float value_of(uint16_t bits, bool bfloat) {
  uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3ffu, word;
  float value = (float)mantissa * 0x1p-24f;
  if (bfloat) word = (uint32_t)bits << 16;
  else if (exponent == 0) memcpy(&word, &value, 4), word |= sign;
  else word = sign | (exponent == 31 ? 255u : exponent + 112) << 23 | mantissa << 13;
  memcpy(&value, &word, 4);
  return value;
}

#include "tensor_memory.h"

// The left operand from the registers of a warpgroup's threads (PTX manual, "Register Fragments for wgmma.mma_async"): register r of
// lane 4 g + t has depths 2 t and 2 t + 1 of row g, plus 8 rows where r is odd, and 8 depths from the third on.
void gather_fragments(unsigned first, uint16_t *elements) {
  for (unsigned i = 0; i < WARPGROUP; ++i)
    for (unsigned r = 0; r < FRAGMENT; ++r) {
      const unsigned lane = i % 32, row = i / 32 * 16 + lane / 4 + r % 2 * 8, depth = lane % 4 * 2 + r / 2 * 8;
      memcpy(elements + row * DEPTHS + depth, &threads[first + i].fragment[r], 4);
    }
}

// Keeps the registers of the thread's left operand, which must not change before the product is waited for.
void keep_fragment(const void *const *registers) {
  Thread &self = threads[current];
  if (self.fragment_count == self.fragment_space) {
    self.fragment_space = self.fragment_space * 2 + 16;
    self.fragments = (Fragment *)realloc(self.fragments, self.fragment_space * sizeof(Fragment));
  }
  Fragment &kept = self.fragments[self.fragment_count++];
  kept.group = self.product_groups;
  for (unsigned r = 0; r < FRAGMENT; ++r) kept.registers[r] = registers[r], memcpy(&kept.values[r], registers[r], 4);
  memcpy(self.fragment, kept.values, sizeof(self.fragment));
}

// Reports registers of left operands that have changed before their products, but for the last groups, were waited for.
void check_fragments(unsigned groups_in_flight) {
  Thread &self = threads[current];
  unsigned left = 0;
  for (unsigned i = 0; i < self.fragment_count; ++i) {
    const Fragment &kept = self.fragments[i];
    for (unsigned r = 0; r < FRAGMENT; ++r)
      if (memcmp(kept.registers[r], &kept.values[r], 4)) emulator_fail("a register of wgmma's left operand has changed before it was waited for");
    if (kept.group + groups_in_flight >= self.product_groups) self.fragments[left++] = kept;
  }
  self.fragment_count = left;
}

// Reads the operands that all threads of the warpgroup name, for all of them.
void read_matrices() {
  Thread &self = threads[current];
  const Matrices &matrices = self.matrices;
  const unsigned first = current / WARPGROUP * WARPGROUP, elements = (ROWS + matrices.columns) * DEPTHS;
  for (unsigned i = first; i < first + WARPGROUP; ++i) {
    const Matrices &other = threads[i].matrices;
    if (other.left != matrices.left || other.right != matrices.right) emulator_fail("the descriptors of a wgmma differ in its warpgroup");
  }
  if (self.read_count == self.read_space) {
    self.read_space = self.read_space * 2 + 16;
    self.reads = (Reads *)realloc(self.reads, self.read_space * sizeof(Reads));
  }
  uint16_t *read = (uint16_t *)malloc(elements * sizeof(uint16_t));
  begin_operand_read();
  if (matrices.left_in_registers) gather_fragments(first, read);
  gather_operands(matrices, read, [](unsigned address, char *from) {
    if (check_operand(address)) access(from, VECTOR, false, false);
    else access(from, VECTOR, false, true), check_fenced(from, VECTOR, own_rank);
  });
  self.reads[self.read_count++] = {matrices, self.product_groups, read};
  const unsigned group = first / WARPGROUP, left = ROWS * DEPTHS;
  if (matrices.kind == emulator_f16 || matrices.kind == emulator_bf16) {
    for (unsigned i = 0; i < elements; ++i)
      (i < left ? left_values[group][i] : right_values[group][i - left]) = value_of(read[i], matrices.kind == emulator_bf16);
    return;
  }
  if (matrices.left_by_depths || matrices.right_by_depths) emulator_fail("wgmma of other than 16 bits reads operands along the depth alone");
  if (matrices.kind == emulator_tf32) {
    for (unsigned i = 0; i < elements / 2; ++i) {
      uint32_t bits;
      memcpy(&bits, read + 2 * i, 4);
      (i < left / 2 ? left_values[group][i] : right_values[group][i - left / 2]) = emulator_tf32_value(bits);
    }
    return;
  }
  const bool unsigned_left = matrices.kind == emulator_u8_s8 || matrices.kind == emulator_u8_u8;
  const bool unsigned_right = matrices.kind == emulator_s8_u8 || matrices.kind == emulator_u8_u8;
  const uint8_t *bytes = (const uint8_t *)read;
  if (has_float8(matrices.kind)) {
    const bool left_e5m2 = matrices.kind == emulator_e5m2_e4m3 || matrices.kind == emulator_e5m2_e5m2;
    const bool right_e5m2 = matrices.kind == emulator_e4m3_e5m2 || matrices.kind == emulator_e5m2_e5m2;
    for (unsigned i = 0; i < 2 * left; ++i) left_values[group][i] = emulator_float8_value(bytes[i], left_e5m2);
    for (unsigned i = 0; i < 2 * (elements - left); ++i)
      right_values[group][i] = emulator_float8_value(bytes[2 * left + i], right_e5m2);
    return;
  }
  for (unsigned i = 0; i < 2 * left; ++i) left_bytes[group][i] = unsigned_left ? bytes[i] : (int8_t)bytes[i];
  for (unsigned i = 0; i < 2 * (elements - left); ++i)
    right_bytes[group][i] = unsigned_right ? bytes[2 * left + i] : (int8_t)bytes[2 * left + i];
}

// Adds the products to what the thread's accumulators will be.
void add_products(void *const *sums) {
  Thread &self = threads[current];
  const unsigned registers = self.matrices.columns / 2, lane = current % 32, first_row = current % WARPGROUP / 32 * 16 + lane / 4;
  Products *own = nullptr;
  for (unsigned i = 0; i < self.product_count && !own; ++i)
    if (self.products[i].registers[0] == sums[0]) own = &self.products[i];
  if (!own) {
    if (self.product_count == self.product_space) {
      self.product_space = self.product_space * 2 + 2;
      self.products = (Products *)realloc(self.products, self.product_space * sizeof(Products));
    }
    own = &self.products[self.product_count++];
    own->count = registers;
    for (unsigned i = 0; i < registers; ++i) own->registers[i] = sums[i], memcpy(&own->values[i], sums[i], 4);
  } else {
    const uint32_t poison = 0xffffffffu;
    for (unsigned i = 0; i < own->count; ++i)
      if (memcmp(own->registers[i], &poison, 4)) emulator_fail("an accumulator of wgmma has changed before it was waited for");
  }
  own->group = self.product_groups;
  if (!self.matrices.adds) memset(own->values, 0, registers * 4);
  const unsigned group = current / WARPGROUP;
  for (unsigned i = 0; i < registers; ++i) {
    unsigned row = (first_row + i / 2 % 2 * 8) * DEPTHS, column = (i / 4 * 8 + lane % 4 * 2 + i % 2) * DEPTHS;
    if (has_bytes(self.matrices.kind)) {
      const int *left = left_bytes[group] + 2 * row, *right = right_bytes[group] + 2 * column;
      for (unsigned k = 0; k < 2 * DEPTHS; ++k) own->values[i] += (uint32_t)(left[k] * right[k]);
    } else {
      float sum;
      memcpy(&sum, &own->values[i], 4);
      const unsigned depths = self.matrices.kind == emulator_tf32 ? DEPTHS / 2 : has_float8(self.matrices.kind) ? 2 * DEPTHS : DEPTHS;
      const float *left = left_values[group] + row / DEPTHS * depths, *right = right_values[group] + column / DEPTHS * depths;
      for (unsigned k = 0; k < depths; ++k) sum += left[k] * right[k];
      memcpy(&own->values[i], &sum, 4);
    }
    memset(sums[i], 0xff, 4);
  }
}

// Reports operands of a wgmma that have changed before its group was waited for.
void check_reads(const Reads &reads) {
  const unsigned elements = (ROWS + reads.matrices.columns) * DEPTHS;
  uint16_t *now = (uint16_t *)malloc(elements * sizeof(uint16_t));
  memcpy(now, reads.elements, elements * sizeof(uint16_t));  // those in registers are checked by their threads
  gather_operands(reads.matrices, now, [](unsigned, char *) {});
  const bool same = memcmp(now, reads.elements, elements * sizeof(uint16_t)) == 0;
  free(now);
  free(reads.elements);
  if (!same) emulator_fail("an operand of wgmma has changed before it was waited for");
}

void forget(Range &range) {
  for (size_t word = 0; range.words && word <= (size_t)(range.end - range.begin) / 4; ++word) free(range.words[word].parts);
  free(range.words);
  range.words = nullptr;
}

// ---- scheduling -------------------------------------------------------------------------------------------------------

void run_threads() {
  if (kernel->cooperative) {
    threadIdx = threads[current].index;
    kernel->call(kernel_arguments);
    if (threads[current].product_count) emulator_fail("a thread ends before it has waited for wgmma");
    threads[current].state = ENDED;
  } else {
    for (unsigned i = 0; i < count; ++i) {
      current = order[i];
      threadIdx = threads[current].index;
      kernel->call(kernel_arguments);
      threads[current].state = ENDED;
    }
    current = order[0];  // whose stack this is
  }
  pause_thread();
  abort();
}

void resume(unsigned thread) {
  enter_block(rank_of(thread));
  current = thread;
  threadIdx = threads[thread].index;
  change(scheduler, threads[thread].context);
  settle();
}

// The lanes that go on with a lane when nothing has made them meet. A GPU promises none; here, all of them when threads run
// forward, and in the other orders those whose number is odd like its own, or even.
unsigned together(unsigned lane) {
  if (seed == 0) return 0xffffffffu;
  return lane % 2 ? 0xaaaaaaaau : 0x55555555u;
}

// Lets the threads of a warp go on that all wait for one another; true if there are such.
bool release_warp(unsigned first) {
  unsigned lanes = count - first < 32 ? count - first : 32, waiting = 0, live = 0;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    if (threads[first + lane].state == IN_WARP) waiting |= 1u << lane;
    if (threads[first + lane].state != ENDED) live |= 1u << lane;
  }
  for (unsigned left = waiting; left;) {
    Thread &leader = threads[first + (unsigned)__builtin_ctz(left)];
    unsigned group = 0;  // those who wait as the leader does
    for (unsigned lane = 0; lane < lanes; ++lane) {
      Thread &other = threads[first + lane];
      if ((waiting >> lane & 1) && other.operation == leader.operation && other.mask == leader.mask &&
          (leader.operation != ACTIVE || other.line == leader.line))
        group |= 1u << lane;
    }
    left &= ~group;
    if (leader.operation == ACTIVE ? waiting != live : (leader.mask & live) != group) continue;
    unsigned ballot = 0, met[32], number = 0;
    for (unsigned lane = 0; lane < lanes; ++lane)
      if (group >> lane & 1) met[number++] = first + lane;
    if (leader.operation == WARP_BARRIER) meet(met, number);
    for (unsigned lane = 0; lane < lanes; ++lane)
      if ((group >> lane & 1) && threads[first + lane].value) ballot |= 1u << lane;
    for (unsigned lane = 0; lane < lanes; ++lane) {
      if (!(group >> lane & 1)) continue;
      Thread &thread = threads[first + lane];
      switch (thread.operation) {
        case WARP_BARRIER: ++thread.warp_time; break;
        case ACTIVE: thread.result = group & together(lane); break;
        case BALLOT: thread.result = ballot; break;
        case GATHER:
          memset(thread.all, 0, 32 * thread.bytes);
          for (unsigned from = 0; from < lanes; ++from)
            if (group >> from & 1) memcpy(thread.all + from * thread.bytes, threads[first + from].own, thread.bytes);
          break;
        case SHUFFLE:  // of a lane that takes no part: whatever there is; here a NaN in every type
          thread.result = thread.source < (int)lanes && (group >> thread.source & 1) ? threads[first + (unsigned)thread.source].value
                                                                                      : 0xffffffffffffffffull;
          break;
      }
      thread.state = READY;
    }
    return true;
  }
  return false;
}

void explain_deadlock() {
  if (explain_wait() || explain_registers() || explain_cluster()) return;
  unsigned ended = count, waiting = count, in_warp = count;
  for (unsigned i = 0; i < count; ++i)
    if (threads[i].state == IN_WARPGROUP) {
      const uint3 &index = threads[i].index;
      say("thread (%u, %u, %u) of block (%u, %u, %u) waits in an instruction of its warpgroup (line %d) for threads of it that never arrive", index.x,
          index.y, index.z, blockIdx.x, blockIdx.y, blockIdx.z, threads[i].line);
      return;
    }
  for (unsigned i = count; i-- > 0;) {
    if (threads[i].state == ENDED) ended = i;
    if (threads[i].state == AT_BARRIER) waiting = i;
    if (threads[i].state == IN_WARP) in_warp = i;
  }
  if (in_warp < count) {
    const Thread &thread = threads[in_warp];
    say("thread (%u, %u, %u) of block (%u, %u, %u) waits in %s (line %d, mask 0x%08x) for lanes that never arrive", thread.index.x,
        thread.index.y, thread.index.z, blockIdx.x, blockIdx.y, blockIdx.z, OPERATIONS[thread.operation], thread.line, thread.mask);
    return;
  }
  const Thread &thread = threads[waiting];
  if (ended < count) {
    const uint3 &other = threads[ended].index;
    say("barrier divergence: thread (%u, %u, %u) of block (%u, %u, %u) waits at __syncthreads (line %d), thread (%u, %u, %u) has "
        "ended without reaching it",
        thread.index.x, thread.index.y, thread.index.z, blockIdx.x, blockIdx.y, blockIdx.z, thread.line, other.x, other.y, other.z);
    return;
  }
  for (unsigned i = 0; i < count; ++i)
    if (threads[i].line != thread.line) {
      const uint3 &other = threads[i].index;
      say("barrier divergence: thread (%u, %u, %u) of block (%u, %u, %u) waits at __syncthreads in line %d, thread (%u, %u, %u) in "
          "line %d",
          thread.index.x, thread.index.y, thread.index.z, blockIdx.x, blockIdx.y, blockIdx.z, thread.line, other.x, other.y, other.z,
          threads[i].line);
      return;
    }
}

bool release_block(unsigned rank) {
  bool any = false;
  unsigned met[MAX_THREADS];
  const unsigned first = rank * block_slots;
  for (unsigned i = 0; i < block_threads; ++i) {
    if (threads[first + i].state != AT_BARRIER || threads[first + i].line != threads[first].line) return false;
    any = any || threads[first + i].value;
    met[i] = first + i;
  }
  release_at_barrier(rank, any);
  meet(met, block_threads);
  return true;
}

void run_cluster() {
  for (unsigned i = 0; i < count; ++i) {
    threads[i].state = i % block_slots < block_threads ? READY : ENDED;
    threads[i].warp_time = 0;
    threads[i].mask = 0;
    threads[i].copy_count = threads[i].groups = threads[i].fences = threads[i].ordered_fences = 0;
    threads[i].product_count = threads[i].product_groups = threads[i].read_count = threads[i].fragment_count = threads[i].first_operand = 0;
    threads[i].begun = false;
    threads[i].fence_epoch = 0;
    threads[i].met = nullptr;
    if (kernel->cooperative || i == order[0]) prepare(threads[i].context, stacks + STACK * (i + 1), run_threads);
  }
  begin_cluster();
  acquired = nullptr;
  begin_bulk();
  begin_tensor_memory();
  begin_registers();
  if (!kernel->cooperative) {
    resume(order[0]);
    return;
  }
  for (;;) {
    for (unsigned i = 0; i < count && !failed; ++i)
      if (threads[order[i]].state == READY) resume(order[i]);
    if (failed) return;
    bool released = false, ended = true;
    for (unsigned i = 0; i < count; ++i) released = released || threads[i].state == READY;  // by the last of a warpgroup
    for (unsigned first = 0; first < count; first += 32)
      while (release_warp(first)) released = true;
    released = complete_copies(!released) || released;
    if (!failed) released = complete_tensor_products(!released) || released;
    if (failed) return;
    for (unsigned i = 0; i < count; ++i) ended = ended && threads[i].state == ENDED;
    if (ended) {
      check_copies();
      check_tensor_memory();
      return;
    }
    for (unsigned rank = 0; rank < cluster; ++rank) released = released || release_block(rank);
    if (released || release_cluster()) continue;
    explain_deadlock();
    failed = true;
    return;
  }
}

void arrange(unsigned *numbers, unsigned length, unsigned salt) {
  for (unsigned i = 0; i < length; ++i) numbers[i] = seed == 1 ? length - 1 - i : i;
  if (seed < 2) return;
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + salt;
  for (unsigned i = length; i > 1; --i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    unsigned other = (unsigned)((state >> 33) % i), kept = numbers[i - 1];
    numbers[i - 1] = numbers[other];
    numbers[other] = kept;
  }
}

unsigned slots_of(size_t in_block) { return (unsigned)(kernel->cluster > 1 ? (in_block + WARPGROUP - 1) / WARPGROUP * WARPGROUP : in_block); }

bool legal(const unsigned *grid, const unsigned *block, unsigned shared_bytes) {
  size_t in_block = (size_t)block[0] * block[1] * block[2], fixed = (size_t)(kernel->shared_end - kernel->shared);
  if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 0x7fffffffu || grid[1] > 65535 || grid[2] > 65535)
    say("a grid of %u x %u x %u blocks", grid[0], grid[1], grid[2]);
  else if (!in_block || in_block > MAX_THREADS || block[0] > 1024 || block[1] > 1024 || block[2] > 64)
    say("a block of %u x %u x %u threads", block[0], block[1], block[2]);
  else if (grid[0] % kernel->cluster)
    say("a grid of %u blocks along x, which clusters of %u do not divide", grid[0], kernel->cluster);
  else if (kernel->cluster > 1 && (kernel->cluster > MAX_CLUSTER || in_block % 32 || slots_of(in_block) * kernel->cluster > MAX_THREADS))
    say("clusters of %u blocks of %zu threads are not emulated", kernel->cluster, in_block);
  else if (kernel->bound && in_block > kernel->bound)
    say("a block of %zu threads, but __launch_bounds__(%u)", in_block, kernel->bound);
  else if (fixed > MAX_STATIC_SHARED)
    say("%zu bytes of static shared memory, more than %u", fixed, MAX_STATIC_SHARED);
  else if (fixed + shared_bytes > MAX_SHARED)
    say("%zu bytes of shared memory, more than %u", fixed + shared_bytes, MAX_SHARED);
  return !have_error;
}

void launch(const unsigned *grid, const unsigned *block, unsigned shared_bytes) {
  have_error = failed = false;
  if (!legal(grid, block, shared_bytes)) return;
  cluster = kernel->cluster;
  block_threads = block[0] * block[1] * block[2];
  block_slots = slots_of(block_threads);
  count = cluster * block_slots;
  // For this launch only: a process may have 65,530 mappings, each guard makes two, and each library has its own stacks.
  stacks = (char *)mmap(nullptr, STACK * MAX_THREADS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (unsigned i = 0; i < count; ++i) mprotect(stacks + STACK * i, GUARD, PROT_NONE);
  if (!dynamic_memory) {
    dynamic_memory = (char *)mmap(nullptr, MAX_CLUSTER * MAX_SHARED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  for (unsigned rank = cluster; rank-- > 0;) {  // the first block is the one that is entered
    char *dynamic = dynamic_memory + rank * MAX_SHARED;
    blocks[rank].static_shared = static_shared = {kernel->shared, kernel->shared_end, nullptr, "static shared memory", true};
    blocks[rank].dynamic_shared = dynamic_shared = {dynamic, dynamic + shared_bytes, nullptr, "dynamic shared memory", true};
  }
  own_rank = 0;
  emulator_dynamic_shared = dynamic_memory;
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  for (unsigned i = 0; i < count; ++i) {
    const unsigned in_block = i % block_slots;
    threads[i].index = {in_block % block[0], in_block / block[0] % block[1], in_block / block[0] / block[1]};
  }
  arrange(order, count, 0);
  launch_epoch = epoch = ++last_epoch;
  release_count = 0;
  pending.address = nullptr;
  running = true;
  uint64_t clusters = (uint64_t)grid[0] * grid[1] * grid[2] / cluster;
  for (uint64_t i = 0; i < clusters && !failed; ++i) {
    const uint64_t first = (seed == 1 ? clusters - 1 - i : seed ? (i + seed) % clusters : i) * cluster;
    for (unsigned rank = 0; rank < cluster; ++rank) {
      const uint64_t number = first + rank;
      enter_block(rank);
      blocks[rank].number = block_number = (uint32_t)number;
      blocks[rank].index = blockIdx = {(unsigned)(number % grid[0]), (unsigned)(number / grid[0] % grid[1]), (unsigned)(number / grid[0] / grid[1])};
      memset(kernel->shared, 0xff, (size_t)(kernel->shared_end - kernel->shared));  // NaN in every type
      memset(dynamic_shared.begin, 0xff, shared_bytes);
    }
    run_cluster();
  }
  running = false;
  munmap(stacks, STACK * MAX_THREADS);
  stacks = nullptr;
  for (unsigned rank = 0; rank < cluster; ++rank) {
    enter_block(rank);
    forget(static_shared);
    forget(dynamic_shared);
  }
}

void wait(Operation operation, unsigned mask, int line) {
  Thread &self = threads[current];
  if (!kernel->cooperative) {
    say("a barrier or warp operation in line %d that the source does not show", line);
    stop();
  }
  if (operation != ACTIVE && !(mask >> current % 32 & 1)) {
    say("%s in line %d by a lane that its mask 0x%08x leaves out", OPERATIONS[operation], line, mask);
    stop();
  }
  self.operation = operation;
  self.mask = mask;
  self.line = line;
  self.state = IN_WARP;
  pause_thread();
}

}  // namespace

extern "C" {

void emulator_launch(const emulator_kernel *launched, void **arguments, const unsigned *grid, const unsigned *block,
                     unsigned shared_bytes) {
  pthread_mutex_lock(&lock);
  kernel = launched;
  kernel_arguments = arguments;
  launch(grid, block, shared_bytes);
  pthread_mutex_unlock(&lock);
}

// The error of the last launch, or null.
__attribute__((visibility("default"))) const char *emulator_error() { return have_error ? error : nullptr; }

// In which order threads and blocks run: 0 forward, 1 backward, others shuffled; see `together`, too.
__attribute__((visibility("default"))) void emulator_order(unsigned new_seed) { seed = new_seed; }

// Says that memory may be accessed; once one was named, nothing else may. `name` must stay.
__attribute__((visibility("default"))) int emulator_memory(void *begin, uint64_t bytes, const char *name, int writable) {
  if (range_count == MAX_RANGES) return 1;
  ranges[range_count++] = {(char *)begin, (char *)begin + bytes, nullptr, name, writable != 0};
  return 0;
}

__attribute__((visibility("default"))) void emulator_forget() {
  while (range_count) forget(ranges[--range_count]);
}

void emulator_fail(const char *message) {
  say("thread (%u, %u, %u) of block (%u, %u, %u): %s", threadIdx.x, threadIdx.y, threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z,
      message);
  stop();
}

void emulator_barrier(int line) {
  if (!kernel->cooperative) wait(WARP_BARRIER, 0xffffffffu, line);
  threads[current].line = line;
  threads[current].state = AT_BARRIER;
  pause_thread();
}

int emulator_barrier_or(int predicate, int line) {
  threads[current].value = predicate != 0;
  emulator_barrier(line);
  return (int)threads[current].result;
}

void emulator_fence() {
  Thread &self = threads[current];
  self.fence_epoch = epoch;
  if (!self.met) return;
  acquired = self.met;
  acquired_epoch = epoch;
  acquired_thread = current;
}

// Blocks run one after another, so one that meets others at an address finds out what all before it have released there.
void emulator_atomic(const volatile void *address, size_t bytes) {
  if (cluster > 1) emulator_fail("an atomic operation of a block of a cluster is not emulated");
  access((char *)address, bytes, true, false);
  Thread &self = threads[current];
  self.met = address;
  if (self.fence_epoch != epoch) return;
  if (release_count == release_space) {
    release_space = release_space * 2 + 64;
    releases = (Release *)realloc(releases, release_space * sizeof(Release));
  }
  releases[release_count++] = {address, block_epoch, epoch};
}

void emulator_warp_barrier(unsigned mask, int line) { wait(WARP_BARRIER, mask, line); }

unsigned emulator_active(int line) {
  wait(ACTIVE, 0, line);
  return (unsigned)threads[current].result;
}

unsigned emulator_ballot(unsigned mask, int predicate, int line) {
  threads[current].value = predicate != 0;
  wait(BALLOT, mask, line);
  return (unsigned)threads[current].result;
}

uint64_t emulator_shuffle(unsigned mask, uint64_t value, int source_lane, int line) {
  threads[current].value = value;
  threads[current].source = source_lane & 31;
  wait(SHUFFLE, mask, line);
  return threads[current].result;
}

void emulator_gather(unsigned mask, const void *own, size_t bytes, void *all, int line) {
  threads[current].own = own;
  threads[current].bytes = bytes;
  threads[current].all = (char *)all;
  wait(GATHER, mask, line);
}

unsigned emulator_to_shared(const void *address) {
  const char *at = (const char *)address;
  if (within(static_shared, at) || within(dynamic_shared, at)) return address_in_shared(at);
  emulator_fail("assembly takes an address for one of shared memory that is none");
}

void *emulator_from_shared(unsigned address) { return shared_address(address); }

void emulator_copy(unsigned shared, const void *global, unsigned bytes, unsigned source_bytes) {
  check_own(shared);
  char *to = (char *)shared_address(shared);
  if ((uintptr_t)to % bytes || (uintptr_t)global % bytes) emulator_fail("cp.async at an address that is not aligned");
  if (source_bytes) access((char *)global, source_bytes, false, true);
  access(to, bytes, true, true);
  settle();
  Thread &self = threads[current];
  if (self.copy_count == self.copy_space) {
    self.copy_space = self.copy_space * 2 + 16;
    self.copies = (Copy *)realloc(self.copies, self.copy_space * sizeof(Copy));
  }
  Copy &copy = self.copies[self.copy_count++];
  copy = {to, bytes, self.groups, {}};
  memcpy(copy.data, global, source_bytes);
  memset(to, 0xff, bytes);  // no caller may rely on what is there now
}

void emulator_copy_commit() { ++threads[current].groups; }

void emulator_copy_wait(unsigned groups_in_flight) {
  Thread &self = threads[current];
  unsigned done = 0;
  while (done < self.copy_count && self.copies[done].group + groups_in_flight < self.groups) {
    const Copy &copy = self.copies[done++];
    access(copy.to, copy.bytes, true, true);
    memcpy(copy.to, copy.data, copy.bytes);
    pending.address = nullptr;  // the write was on its way before
  }
  self.copy_count -= done;
  memmove(self.copies, self.copies + done, self.copy_count * sizeof(Copy));
}

void emulator_mbarrier_init(unsigned address, unsigned arrivals) {
  check_own(address);
  if (!arrivals || address % 8) emulator_fail("an mbarrier without arrivals, or at an address that is not a multiple of 8");
  begin_clocks();
  access((char *)shared_address(address), 8, true, false);
  if (barrier_count == MAX_BARRIERS) emulator_fail("more mbarriers than the emulator has");
  for (unsigned i = 0; i < barrier_count; ++i)
    if (barriers[i].address == address) emulator_fail("an mbarrier is initialized twice");
  uint32_t *released = (uint32_t *)calloc(CLOCKS, sizeof(uint32_t)), *complete = (uint32_t *)calloc(CLOCKS, sizeof(uint32_t));
  barriers[barrier_count++] = {address, arrivals, arrivals, 0, 0, epoch, current, threads[current].fences, own_clock(), false, released, complete};
}

void emulator_mbarrier_arrive(unsigned address, unsigned bytes) {
  check_own(address);
  Barrier &barrier = barrier_at(address);
  if (!barrier.missing) emulator_fail("more arrivals at an mbarrier than its phase has");
  if ((barrier.bytes += bytes) > MAX_EXPECTED) emulator_fail("an mbarrier expects more bytes than it can count");
  acquire(barrier.released, clocks[current]);
  ++clocks[current][current];
  --barrier.missing;
  advance(barrier);
}

unsigned emulator_mbarrier_wait(unsigned address, unsigned parity, int line) {
  check_own(address);
  Barrier &barrier = barrier_at(address);
  Thread &self = threads[current];
  if ((barrier.phase & 1) != (parity & 1)) {
    acquire(clocks[current], barrier.complete);
    return 1;
  }
  self.mask = parity & 1;
  self.source = (int)(&barrier - barriers);
  self.line = line;
  self.state = AT_MBARRIER;
  pause_thread();
  return 1;
}

void emulator_bulk_copy(const void *map, unsigned rank, const int *coordinates, unsigned shared, unsigned barrier, unsigned blocks_of_group) {
  check_own(shared);
  if (blocks_of_group < 2) check_own(barrier);
  const emulator_tensor_map &of = *(const emulator_tensor_map *)map;
  if (of.magic == EMULATOR_TENSOR_MAP && of.rank != rank) emulator_fail("a bulk copy of another rank than its tensor map has");
  begin_bulk_copy(of, coordinates, shared, barrier);
}

void emulator_fence_async() { ++threads[current].fences; }

void emulator_warpgroup_fence() { threads[current].begun = true; }

void emulator_warpgroup_multiply(void *const *sums, const void *const *fragment, unsigned columns, uint64_t left, uint64_t right,
                                 bool left_by_depths, bool right_by_depths, emulator_kind kind, bool adds, int line) {
  Thread &self = threads[current];
  const unsigned first = current / WARPGROUP * WARPGROUP;
  if (first + WARPGROUP > count) emulator_fail("wgmma of threads that are no whole warpgroup");
  if (columns % (has_bytes(kind) && columns > 32 ? 16 : 8) || columns > MAX_COLUMNS)
    emulator_fail("wgmma with a number of columns that it does not have");
  if (!self.begun) emulator_fail("wgmma without wgmma.fence since its accumulators may have been accessed");
  self.matrices = {left, right, columns, left_by_depths, right_by_depths, kind, adds, fragment != nullptr};
  if (fragment) keep_fragment(fragment);
  self.line = line;
  self.state = IN_WARPGROUP;
  unsigned arrived = 0;
  for (unsigned i = first; i < first + WARPGROUP; ++i) arrived += threads[i].state == IN_WARPGROUP && threads[i].line == line;
  if (arrived == WARPGROUP) {
    read_matrices();
    for (unsigned i = first; i < first + WARPGROUP; ++i) threads[i].state = READY;
  } else {
    pause_thread();
  }
  add_products(sums);
}

void emulator_cluster_barrier(int line) { wait_for_cluster(line); }
unsigned emulator_map_to_rank(unsigned address, unsigned rank) { return map_to_rank(address, rank); }
void emulator_fence_barriers() { publish_barriers(); }

void emulator_tensor_allocate(unsigned address, unsigned columns, unsigned blocks_of_group, int line) {
  allocate_tensor_memory(address, columns, blocks_of_group, line);
}
void emulator_tensor_free(unsigned address, unsigned columns, unsigned blocks_of_group, int line) {
  free_tensor_memory(address, columns, blocks_of_group, line);
}
void emulator_tensor_relinquish(unsigned blocks_of_group, int line) { relinquish_tensor_memory(blocks_of_group, line); }
void emulator_tensor_multiply(unsigned memory, uint64_t left, uint64_t right, unsigned instruction, bool accumulates,
                              emulator_tensor_kind kind, emulator_rows rows, unsigned blocks_of_group) {
  multiply_into_tensor_memory(memory, left, right, instruction, accumulates, kind, rows, blocks_of_group);
}
void emulator_tensor_commit(unsigned barrier, unsigned ranks, unsigned blocks_of_group) {
  commit_tensor_products(barrier, ranks, blocks_of_group);
}
void emulator_tensor_load(void *const *registers, unsigned count, unsigned address, bool by_rows, int line) {
  load_tensor_memory((uint32_t *const *)registers, count, address, by_rows, line);
}
void emulator_tensor_wait(int line) { wait_for_tensor_loads(line); }
void emulator_tensor_fence(bool before) { order_tensor_memory(before); }

void emulator_set_registers(unsigned wanted, bool rises, int line) { set_registers(wanted, rises, line); }

void emulator_warpgroup_commit() { ++threads[current].product_groups; }

void emulator_warpgroup_wait(unsigned groups_in_flight) {
  Thread &self = threads[current];
  wait_for_operands(groups_in_flight);
  check_fragments(groups_in_flight);
  unsigned left = 0;
  for (unsigned i = 0; i < self.read_count; ++i) {
    if (self.reads[i].group + groups_in_flight < self.product_groups) check_reads(self.reads[i]);
    else self.reads[left++] = self.reads[i];
  }
  self.read_count = left;
  left = 0;
  for (unsigned i = 0; i < self.product_count; ++i) {
    const Products &done = self.products[i];
    if (done.group + groups_in_flight >= self.product_groups) {
      self.products[left++] = done;
      continue;
    }
    for (unsigned j = 0; j < done.count; ++j) memcpy(done.registers[j], &done.values[j], 4);
  }
  self.product_count = left;
  self.begun = false;
}

// ---- hooks of the compiler's checks -----------------------------------------------------------------------------------

#define EMULATOR_HOOK(bytes)                                                                   \
  void __tsan_read##bytes(void *address) { access((char *)address, bytes, false, true); }      \
  void __tsan_write##bytes(void *address) { access((char *)address, bytes, true, true); }      \
  void __tsan_unaligned_read##bytes(void *address) { access((char *)address, bytes, false, true); } \
  void __tsan_unaligned_write##bytes(void *address) { access((char *)address, bytes, true, true); } \
  void __tsan_volatile_read##bytes(void *address) { access((char *)address, bytes, false, true); }  \
  void __tsan_volatile_write##bytes(void *address) { access((char *)address, bytes, true, true); }
EMULATOR_HOOK(1)
EMULATOR_HOOK(2)
EMULATOR_HOOK(4)
EMULATOR_HOOK(8)
EMULATOR_HOOK(16)
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
  access((char *)from, bytes, false, true);
  access((char *)to, bytes, true, true);
  return memcpy(to, from, bytes);
}
void *__tsan_memmove(void *to, const void *from, size_t bytes) {
  access((char *)from, bytes, false, true);
  access((char *)to, bytes, true, true);
  return memmove(to, from, bytes);
}
void *__tsan_memset(void *to, int value, size_t bytes) {
  access((char *)to, bytes, true, true);
  return memset(to, value, bytes);
}

struct SourceLocation { const char *file; uint32_t line, column; };
void __ubsan_handle_out_of_bounds_abort(const SourceLocation *location, uintptr_t index) {
  char text[200];
  snprintf(text, sizeof text, "index %td outside of its array in line %u", (ptrdiff_t)index, location->line);
  emulator_fail(text);
}
void __ubsan_handle_type_mismatch_v1_abort(const SourceLocation *location, uintptr_t address) {
  char text[200];
  snprintf(text, sizeof text, "access at an address that is not aligned for its type (or null), ...%03x, in line %u",
           (unsigned)(address & 0xfff), location->line);
  emulator_fail(text);
}
}

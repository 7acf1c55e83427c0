// Barriers in shared memory (mbarrier) and bulk copies of boxes of tensors (cp.async.bulk.tensor): a part of runtime.cpp.
//
// What orders accesses here is no barrier of the whole block, so each thread has a vector clock: how far it knows what each
// other thread has done, and how many phases of each mbarrier it knows to be complete. An arrival releases the clock of its
// thread, a wait acquires the clocks of all that have arrived in its phase, as __syncthreads and warp operations do. A copy has
// no thread: it writes poison when it begins, and its bytes after all threads have gone on as far as they can. For each vector
// of 16 bytes of shared memory the last copy to it and the last reads of it are known, and compared with the clock of the
// thread that accesses it next. See PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier", "Async proxy".

constexpr unsigned MAX_BARRIERS = 64, VECTOR = 16, VECTORS = (1024 + MAX_STATIC_SHARED + MAX_SHARED + 2048) / VECTOR;
constexpr unsigned CLOCKS = MAX_THREADS + MAX_BARRIERS, MAX_RANK = 5;
constexpr int64_t MAX_EXPECTED = (1 << 20) - 1;

struct Barrier {
  unsigned address, expected, missing;  // arrivals of a phase, and those that its current one waits for
  int64_t bytes;                        // that this phase waits for
  uint32_t phase, epoch;                // the current one; when it was initialized
  unsigned thread, fences;              // that initialized it, and how many fences it had executed
  uint32_t clock;                       // of this thread then
  bool published;                       // by fence.mbarrier_init after it
  uint32_t *released, *complete;        // clocks of those that have arrived in this phase, and in the last one
};
struct BulkCopy {  // one that has begun in this block
  emulator_tensor_map map;
  int coordinates[MAX_RANK];
  unsigned shared, barrier;
  uint32_t phase;  // that it completes
  bool done;
};
struct OperandRead {  // of one wgmma
  unsigned warpgroup, group;   // of threads, of products
  uint32_t waited[WARPGROUP];  // the clocks of its threads when they had waited for it, or 0
};
struct GenericAccess {  // the last one of a warp
  uint32_t clock, fences;
  uint16_t thread;
};
struct Vector {  // numbers from 1 on, 0 for none
  unsigned copy, product, reads[MAX_THREADS / WARPGROUP];
  GenericAccess generic[MAX_THREADS / 32];
};

Barrier barriers[MAX_BARRIERS];
unsigned barrier_count;
uint32_t (*clocks)[CLOCKS], (*seen)[CLOCKS];  // seen: at the last tcgen05.fence::after_thread_sync
Vector *vectors;
BulkCopy *bulk_copies;
unsigned bulk_count, bulk_space;
OperandRead *operand_reads;
unsigned operand_count, operand_space;

void check_product_reads(unsigned product, unsigned byte);  // see tensor_memory.h

void begin_bulk() {  // a block
  for (unsigned i = 0; i < barrier_count; ++i) free(barriers[i].released), free(barriers[i].complete);
  barrier_count = bulk_count = operand_count = 0;
  has_barriers = false;
}

void begin_clocks() {
  if (has_barriers) return;
  if (!clocks) clocks = (uint32_t(*)[CLOCKS])malloc(sizeof(uint32_t) * CLOCKS * MAX_THREADS);
  if (!seen) seen = (uint32_t(*)[CLOCKS])malloc(sizeof(uint32_t) * CLOCKS * MAX_THREADS);
  if (!vectors) vectors = (Vector *)malloc(sizeof(Vector) * VECTORS * MAX_CLUSTER);
  memset(clocks, 0, sizeof(uint32_t) * CLOCKS * count);
  memset(seen, 0, sizeof(uint32_t) * CLOCKS * count);
  memset(vectors, 0, sizeof(Vector) * VECTORS * cluster);
  for (unsigned i = 0; i < count; ++i) clocks[i][i] = 1;
  has_barriers = true;
}

void acquire(uint32_t *clock, const uint32_t *of) {
  for (unsigned i = 0; i < CLOCKS; ++i)
    if (clock[i] < of[i]) clock[i] = of[i];
}

uint32_t own_clock() { return has_barriers ? clocks[current][current] : 0; }

// Whether a thread knows what another one did at a time, and that a copy is complete.
bool knows(unsigned thread, unsigned other, uint32_t clock) {
  return thread == other || (has_barriers && clocks[thread][other] >= clock);
}
bool knows(unsigned thread, const BulkCopy &copy) { return clocks[thread][MAX_THREADS + copy.barrier] > copy.phase; }

// Some threads have met: each knows what all of them know, and what each of them does from now on is new.
void meet(const unsigned *met, unsigned number) {
  if (!has_barriers || !number) return;
  static uint32_t all[CLOCKS];
  memset(all, 0, sizeof all);
  for (unsigned i = 0; i < number; ++i) acquire(all, clocks[met[i]]);
  for (unsigned i = 0; i < number; ++i) {
    uint32_t own = clocks[met[i]][met[i]];
    memcpy(clocks[met[i]], all, sizeof all);
    clocks[met[i]][met[i]] = own + 1;
  }
}

[[noreturn]] void fail_at(const char *format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void fail_at(const char *format, ...) {
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  emulator_fail(text);
}

unsigned address_in_shared(const char *at) {
  const ptrdiff_t offset = within(static_shared, at) ? at - static_shared.begin + 1024 : at - dynamic_shared.begin + dynamic_begin();
  return (unsigned)offset | own_rank << RANK_SHIFT;
}

Vector &vector_at(unsigned address) { return vectors[(address >> RANK_SHIFT) * VECTORS + (address & OFFSET_MASK) / VECTOR]; }

// The byte of dynamic shared memory at an address, for messages.
unsigned byte_of(unsigned address) { return (address & OFFSET_MASK) - (unsigned)dynamic_begin(); }

// The mbarrier at an address, for an operation of the current thread.
Barrier &barrier_at(unsigned address) {
  const bool own = address >> RANK_SHIFT == own_rank;
  char *at = (char *)shared_address(address);
  if (own) access(at, 8, false, false);
  for (unsigned i = 0; i < barrier_count; ++i) {
    Barrier &barrier = barriers[i];
    if (barrier.address != address) continue;
    if (own ? barrier.thread != current && barrier.epoch == epoch : !barrier.published || !knows(current, barrier.thread, barrier.clock))
      fail_at("an mbarrier that thread %u has initialized with no %sbarrier between", barrier.thread,
              own ? "" : "fence.mbarrier_init and no barrier of the cluster, or no ");
    return barrier;
  }
  fail_at("an operation on an mbarrier at shared address %u, which is not initialized", address & OFFSET_MASK);
}

// fence.mbarrier_init: other blocks may use what the thread has initialized, after a barrier.
void publish_barriers() {
  for (unsigned i = 0; i < barrier_count; ++i) barriers[i].published = barriers[i].published || barriers[i].thread == current;
}

// Whether something arrives at an mbarrier of a block that has ended, whose shared memory another one may have.
bool arrives_too_late(const Barrier &barrier, const char *what) {
  if (!has_ended(barrier.address >> RANK_SHIFT)) return false;
  say("%s arrives at an mbarrier of a block that has ended", what);
  failed = true;
  return true;
}

void advance(Barrier &barrier) {
  if (barrier.missing || barrier.bytes) return;
  uint32_t *clock = barrier.released;
  barrier.released = barrier.complete;
  barrier.complete = clock;
  memset(barrier.released, 0, sizeof(uint32_t) * CLOCKS);
  ++barrier.phase;
  barrier.missing = barrier.expected;
  const unsigned number = (unsigned)(&barrier - barriers);
  barrier.complete[MAX_THREADS + number] = barrier.phase;
  for (unsigned i = 0; i < count; ++i)
    if (threads[i].state == AT_MBARRIER && threads[i].source == (int)number && (barrier.phase & 1) != threads[i].mask)
      threads[i].state = READY, acquire(clocks[i], barrier.complete);
}

// A generic access of the current thread to shared memory.
void check_generic(char *at, size_t bytes, bool writes) {
  const unsigned first = address_in_shared(at);
  for (unsigned vector = first / VECTOR; vector * VECTOR < first + bytes; ++vector) {
    Vector &here = vector_at(vector * VECTOR);
    if (here.copy && !knows(current, bulk_copies[here.copy - 1]))
      fail_at("%s byte %u of shared memory, which a bulk copy writes whose mbarrier the thread has not waited for",
              writes ? "a write to" : "a read of", byte_of(first));
    if (writes) here.copy = 0;
    here.generic[current / 32] = {own_clock(), threads[current].fences, (uint16_t)current};
  }
}

// Operands that a warpgroup's wgmma reads, which the current thread was the last to reach.
void begin_operand_read() {
  if (!has_barriers) return;
  if (operand_count == operand_space) {
    operand_space = operand_space * 2 + 64;
    operand_reads = (OperandRead *)realloc(operand_reads, operand_space * sizeof(OperandRead));
  }
  operand_reads[operand_count++] = {current / WARPGROUP, threads[current].product_groups, {}};
}

// Whether a vector's last write is a bulk copy; all threads of the warpgroup must know then that it is complete.
bool check_operand(unsigned address) {
  if (!has_barriers) return false;
  Vector &here = vector_at(address);
  here.reads[current / WARPGROUP] = operand_count;
  if (!here.copy) return false;
  const unsigned first = current / WARPGROUP * WARPGROUP;
  for (unsigned i = first; i < first + WARPGROUP; ++i)
    if (!knows(i, bulk_copies[here.copy - 1]))
      fail_at("wgmma reads byte %u of shared memory, which a bulk copy writes whose mbarrier thread %u has not waited for",
              byte_of(address), i);
  return true;
}

// The current thread has waited for all groups of products but the last ones.
void wait_for_operands(unsigned groups_in_flight) {
  Thread &self = threads[current];
  if (!has_barriers) return;
  for (unsigned &i = self.first_operand; i < operand_count; ++i) {
    OperandRead &read = operand_reads[i];
    if (read.warpgroup != current / WARPGROUP) continue;
    if (read.group + groups_in_flight >= self.product_groups) return;
    read.waited[current % WARPGROUP] = own_clock();
  }
}

// Whether the current thread knows that a wgmma has read: of each warp, that a thread has waited for it.
bool knows(const OperandRead &read) {
  for (unsigned warp = 0; warp < WARPGROUP; warp += 32) {
    bool known = false;
    for (unsigned lane = warp; lane < warp + 32 && !known; ++lane)
      known = read.waited[lane] && knows(current, read.warpgroup * WARPGROUP + lane, read.waited[lane]);
    if (!known) return false;
  }
  return true;
}

// What a thread did to shared memory before there were mbarriers, for a bulk copy of the current thread.
void check_earlier(const Access &access, unsigned byte) {
  if (access.epoch < block_epoch || access.clock) return;
  if (access.epoch == epoch && access.thread != current)
    fail_at("a bulk copy to byte %u of shared memory, which thread %u accesses with no barrier between", byte, access.thread);
  if (threads[access.thread].fences <= access.fences)
    fail_at("a bulk copy to byte %u of shared memory, which thread %u has accessed with no fence.proxy.async after it", byte,
            access.thread);
}

// A bulk copy of the current thread begins to write a vector.
void check_overwritten(unsigned address) {
  Vector &here = vector_at(address);
  const unsigned byte = byte_of(address);
  if (here.copy && !knows(current, bulk_copies[here.copy - 1]))
    fail_at("a bulk copy to byte %u of shared memory, which another one writes whose mbarrier its thread has not waited for", byte);
  for (unsigned group = 0; group < MAX_THREADS / WARPGROUP; ++group)
    if (here.reads[group] && !knows(operand_reads[here.reads[group] - 1]))
      fail_at("a bulk copy to byte %u of shared memory, which wgmma of warpgroup %u may still read", byte, group);
  check_product_reads(here.product, byte);
  for (const GenericAccess &access : here.generic) {
    if (!access.clock) continue;
    if (!knows(current, access.thread, access.clock))
      fail_at("a bulk copy to byte %u of shared memory, which thread %u accesses with no mbarrier between", byte, access.thread);
    if (threads[access.thread].fences <= access.fences)
      fail_at("a bulk copy to byte %u of shared memory, which thread %u has accessed with no fence.proxy.async after it", byte,
              access.thread);
  }
  const Range &range = within(static_shared, (char *)shared_address(address)) ? static_shared : dynamic_shared;
  const Word *words = range.words ? range.words + ((char *)shared_address(address) - range.begin) / 4 : nullptr;
  for (unsigned i = 0; words && i < VECTOR / 4; ++i) {
    check_earlier(words[i].write, byte), check_earlier(words[i].read, byte);
    for (unsigned part = 0; words[i].parts && part < 4; ++part)
      check_earlier(words[i].parts[part].write, byte), check_earlier(words[i].parts[part].read, byte);
  }
  const unsigned copy = bulk_count;
  here = {};
  here.copy = copy;
}

// The vectors of a copy's box, in the order of its elements: where in global memory, how many bytes of it are inside, and where to.
template <typename F> void each_vector(const BulkCopy &copy, F body) {
  const emulator_tensor_map &map = copy.map;
  const unsigned row = map.box[0] * map.element_bytes;
  unsigned rows = 1;
  for (unsigned i = 1; i < map.rank; ++i) rows *= map.box[i];
  for (unsigned r = 0; r < rows; ++r) {
    bool inside = true;
    char *line = (char *)map.address;
    for (unsigned i = 1, left = r; i < map.rank; left /= map.box[i++]) {
      const int64_t at = copy.coordinates[i] + (int64_t)(left % map.box[i] * map.steps[i]);
      inside = inside && at >= 0 && at < (int64_t)map.sizes[i];
      line += at * (int64_t)map.strides[i - 1];
    }
    for (unsigned byte = 0; byte < row; byte += VECTOR) {
      const int64_t first = copy.coordinates[0] + (int64_t)(byte / map.element_bytes), each = VECTOR / map.element_bytes;
      int64_t present = (int64_t)map.sizes[0] - first;
      present = !inside || present < 0 || first <= -each ? 0 : present > each ? each : present;
      if (first < 0 && present) emulator_fail("a bulk copy of a vector that begins before the first element of a row is not emulated");
      unsigned to = copy.shared + r * row + byte;
      to ^= (to >> 7 & (map.swizzle - 1)) << 4;
      body(line + first * map.element_bytes, (unsigned)present * map.element_bytes, to);
    }
  }
}

void forget_accesses(char *at, size_t bytes) {
  Range &range = within(static_shared, at) ? static_shared : dynamic_shared;
  for (size_t word = (size_t)(at - range.begin) / 4; range.words && bytes; ++word, bytes -= 4) {
    free(range.words[word].parts);
    range.words[word] = {};
  }
}

void begin_bulk_copy(const emulator_tensor_map &map, const int *coordinates, unsigned shared, unsigned barrier_address) {
  settle();
  Barrier &barrier = barrier_at(barrier_address);
  const Thread &maker = threads[barrier.thread];
  if ((barrier.thread / 32 == current / 32 ? maker.fences : maker.ordered_fences) <= barrier.fences)
    emulator_fail("a bulk copy that completes on an mbarrier which was initialized with no fence.proxy.async and barrier after it");
  if (map.magic != EMULATOR_TENSOR_MAP) emulator_fail("a bulk copy by a tensor map that no host has encoded");
  if (shared % 128) emulator_fail("a bulk copy to an address that is not a multiple of 128");
  if (bulk_count == bulk_space) {
    bulk_space = bulk_space * 2 + 64;
    bulk_copies = (BulkCopy *)realloc(bulk_copies, bulk_space * sizeof(BulkCopy));
  }
  BulkCopy &copy = bulk_copies[bulk_count++];
  copy = {map, {}, shared, (unsigned)(&barrier - barriers), barrier.phase, false};
  for (unsigned i = 0; i < map.rank; ++i) copy.coordinates[i] = coordinates[i];
  each_vector(copy, [&](char *from, unsigned bytes, unsigned to) {
    if (bytes) access(from, bytes, false, true);
    char *target = (char *)shared_address(to);
    access(target, VECTOR, true, false);
    check_overwritten(to);
    forget_accesses(target, VECTOR);
    memset(target, 0xff, VECTOR);
  });
}

// The TF32 that a copy by a tensor map of type TFLOAT32 makes of a float32: the nearest, ties to even; infinities and NaN stay.
uint32_t nearest_tf32(uint32_t bits) {
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0xfffu + (bits >> 13 & 1)) & 0xffffe000u;
}

void complete(BulkCopy &copy) {
  copy.done = true;
  int64_t bytes = 0;
  each_vector(copy, [&](char *from, unsigned inside, unsigned to) {
    char *target = (char *)shared_address(to);
    memset(target, 0, VECTOR);
    memcpy(target, from, inside);
    for (unsigned at = 0; copy.map.element_bytes == 4 && at < VECTOR; at += 4) {
      uint32_t bits;
      memcpy(&bits, target + at, 4);
      bits = nearest_tf32(bits);
      memcpy(target + at, &bits, 4);
    }
    bytes += VECTOR;
  });
  Barrier &barrier = barriers[copy.barrier];
  if (arrives_too_late(barrier, "a bulk copy")) return;
  if (barrier.phase != copy.phase) {
    say("a bulk copy that completes on an mbarrier after the phase that it began in: its bytes were not expected");
    failed = true;
    return;
  }
  barrier.bytes -= bytes;
  advance(barrier);
}

// Completes copies that have begun; true if there were any. `late`: no thread can go on without. The first order has all copies
// as late as can be, the second early, the newest first, the others one by one.
bool complete_copies(bool late) {
  if (seed == 0 && !late) return false;
  bool any = false;
  for (unsigned i = 0; i < bulk_count && !failed && (seed < 2 || !any); ++i) {
    BulkCopy &copy = bulk_copies[seed == 1 ? bulk_count - 1 - i : i];
    if (copy.done) continue;
    complete(copy);
    any = true;
  }
  return any;
}

// When all threads of a block have ended.
void check_copies() {
  for (unsigned i = 0; i < bulk_count; ++i) {
    bool known = false;
    for (unsigned thread = 0; thread < count && !known; ++thread) known = knows(thread, bulk_copies[i]);
    if (known) continue;
    say("block (%u, %u, %u) ends before a thread has waited for a bulk copy to byte %u of shared memory", blockIdx.x, blockIdx.y,
        blockIdx.z, byte_of(bulk_copies[i].shared));
    failed = true;
    return;
  }
}

bool explain_wait() {
  for (unsigned i = 0; i < count; ++i) {
    if (threads[i].state != AT_MBARRIER) continue;
    const Barrier &barrier = barriers[threads[i].source];
    enter_block(rank_of(i));
    const uint3 &index = threads[i].index;
    say("thread (%u, %u, %u) of block (%u, %u, %u) waits (line %d) for phase %u of the mbarrier at byte %u of shared memory, which "
        "lacks %u arrivals and %lld bytes",
        index.x, index.y, index.z, blockIdx.x, blockIdx.y, blockIdx.z, threads[i].line, barrier.phase, (barrier.address & OFFSET_MASK) - 1024,
        barrier.missing, (long long)barrier.bytes);
    return true;
  }
  return false;
}

// Tensor memory and the products whose sums are there (tcgen05), a part of runtime.cpp.
//
// A product reads its operands and writes its sums at some time between the instruction and the arrival of the commit that
// tracks it, here as copies do: after all threads have gone on as far as they can, or the next time that they run. Its operands
// must be the same at both times. What a thread may do with tensor memory follows from `seen`, the clock that it had at its last
// tcgen05.fence::after_thread_sync. See PTX ISA, "Memory Consistency Model for 5th generation of TensorCore operations".

constexpr unsigned LANES = 128, TENSOR_COLUMNS = 512, MAX_ALLOCATIONS = 64;

struct Allocation {
  unsigned rank, first, columns, thread;
  uint32_t clock;
  bool live;
};
struct TensorProduct {
  unsigned rank, blocks;  // of the block that began it, or the first of a pair, and how many share it
  Layout left[MAX_CLUSTER], right[MAX_CLUSTER];
  bool left_by_depths, right_by_depths, accumulates, done;
  unsigned columns, memory, kind, left_type, right_type, thread;
  uint16_t *elements;  // as they were when it began
};
struct TensorCommit {
  unsigned thread, products, barrier;  // products of the block before it
  uint32_t phase, *clock;              // that it completes; of its thread
  bool done;
};
struct TensorLoad {  // the last one of a warp from a column
  unsigned thread;
  uint32_t clock;
  enum : uint8_t { NONE, BEGUN, WAITED, ORDERED } state;
};
struct TensorColumn {
  unsigned product;  // the last one that writes it, from 1 on; 0 for none
  TensorLoad loads[MAX_THREADS / 32];
};
struct LoadedRegister {
  uint32_t *to, value;
  unsigned column;
};

uint32_t tensor_memory[MAX_CLUSTER][LANES][TENSOR_COLUMNS];
TensorColumn tensor_columns[MAX_CLUSTER][TENSOR_COLUMNS];
Allocation allocations[MAX_ALLOCATIONS];
unsigned allocation_count;
bool relinquished[MAX_CLUSTER];
unsigned cta_group;  // of all tcgen05 instructions of the kernel: 1 or 2; 0 before the first one
struct {
  bool holds;
  uint64_t matrix;  // that they are, and how they are read
  unsigned instruction, thread;
  emulator_tensor_kind kind;
} kept_rows[MAX_CLUSTER];  // of the left operand, by .collector::a::fill
TensorProduct *tensor_products;
unsigned tensor_product_count, tensor_product_space;
TensorCommit *tensor_commits;
unsigned tensor_commit_count, tensor_commit_space;
LoadedRegister *loaded_registers[MAX_THREADS];
unsigned loaded_count[MAX_THREADS];

void begin_tensor_memory() {  // a block
  for (unsigned i = 0; i < tensor_product_count; ++i) free(tensor_products[i].elements);
  for (unsigned i = 0; i < tensor_commit_count; ++i) free(tensor_commits[i].clock);
  allocation_count = tensor_product_count = tensor_commit_count = 0;
  for (bool &each : relinquished) each = false;
  for (auto &each : kept_rows) each.holds = false;
  cta_group = 0;
  memset(loaded_count, 0, sizeof loaded_count);
}

// Whether a clock has that a product is complete: by any commit of its thread after it.
bool knows_product(const uint32_t *clock, unsigned product) {
  for (unsigned i = 0; i < tensor_commit_count; ++i) {
    const TensorCommit &commit = tensor_commits[i];
    if (commit.done && commit.products > product && commit.thread == tensor_products[product].thread &&
        clock[MAX_THREADS + commit.barrier] > commit.phase)
      return true;
  }
  return false;
}

// A bulk copy of the current thread begins to write a vector, which a product has read.
void check_product_reads(unsigned product, unsigned byte) {
  if (product && !knows_product(clocks[current], product - 1))
    fail_at("a bulk copy to byte %u of shared memory, which tcgen05.mma may still read", byte);
}

// All instructions of a kernel have the same .cta_group; those of a pair are for clusters of two blocks.
void use_group(unsigned blocks) {
  if (cta_group && cta_group != blocks) emulator_fail("tcgen05 instructions of one kernel with different .cta_group");
  if (blocks > cluster) emulator_fail("a tcgen05 instruction of a pair of blocks in a cluster that is none");
  cta_group = blocks;
}

// The allocation of a block that some columns are in, which the current thread must know of.
Allocation &allocation_of(unsigned rank, unsigned first, unsigned columns, const char *what) {
  for (unsigned i = 0; i < allocation_count; ++i) {
    Allocation &each = allocations[i];
    if (each.rank != rank) continue;
    if (!each.live || first < each.first || first + columns > each.first + each.columns) continue;
    if (!knows(current, each.thread, each.clock))
      fail_at("%s of tensor memory that thread %u has allocated with no barrier between", what, each.thread);
    return each;
  }
  fail_at("%s of columns %u to %u of tensor memory, which are not allocated", what, first, first + columns - 1);
}

// All lanes of a warp execute an instruction of it, with the same operand; whether the current thread is the first.
bool meet_in_warp(unsigned operand, int line) {
  uint32_t all[32];
  emulator_gather(0xffffffffu, &operand, sizeof operand, all, line);
  for (uint32_t other : all)
    if (other != operand) emulator_fail("an operand of a tcgen05 instruction differs in its warp");
  return current % 32 == 0;
}

void allocate_tensor_memory(unsigned address, unsigned columns, unsigned group, int line) {
  begin_clocks();
  check_own(address);
  use_group(group);
  if (columns < 32 || columns > TENSOR_COLUMNS || columns & (columns - 1))
    emulator_fail("tcgen05.alloc of a number of columns that is no power of two from 32 to 512");
  if (!meet_in_warp(address, line)) return;
  if (relinquished[own_rank]) emulator_fail("tcgen05.alloc after tcgen05.relinquish_alloc_permit");
  for (unsigned i = 0; i < allocation_count; ++i)
    if (allocations[i].rank == own_rank && columns > allocations[i].columns)
      emulator_fail("tcgen05.alloc of more columns than the one before");
  if (group == 2) meet_other_block("tcgen05.alloc", columns, line);
  if (allocation_count == MAX_ALLOCATIONS) emulator_fail("more allocations of tensor memory than the emulator has");
  for (unsigned first = TENSOR_COLUMNS; first >= columns;) {
    first -= columns;
    bool is_free = true;
    for (unsigned i = 0; i < allocation_count; ++i)
      is_free = is_free && !(allocations[i].rank == own_rank && allocations[i].live && first < allocations[i].first + allocations[i].columns &&
                             allocations[i].first < first + columns);
    if (!is_free) continue;
    allocations[allocation_count++] = {own_rank, first, columns, current, own_clock(), true};
    for (unsigned column = first; column < first + columns; ++column) {
      tensor_columns[own_rank][column] = {};
      for (auto &lane : tensor_memory[own_rank]) lane[column] = 0xffffffffu;
    }
    char *to = (char *)shared_address(address);
    access(to, 4, true, true);
    memcpy(to, &first, 4);
    return;
  }
  emulator_fail("tcgen05.alloc waits for columns that the block itself has");
}

void check_free(const TensorColumn &column, const char *what) {
  if (column.product && !knows_product(seen[current], column.product - 1))
    fail_at("%s of tensor memory that tcgen05.mma writes, with no commit, wait and tcgen05.fence between", what);
  for (const TensorLoad &load : column.loads)
    if (load.state && (load.state != TensorLoad::ORDERED || seen[current][load.thread] < load.clock))
      fail_at("%s of tensor memory that thread %u loads, with no tcgen05.wait::ld, fences and barrier between", what, load.thread);
}

void free_tensor_memory(unsigned address, unsigned columns, unsigned group, int line) {
  use_group(group);
  if (!meet_in_warp(address, line)) return;
  for (unsigned i = 0; i < allocation_count; ++i) {
    Allocation &each = allocations[i];
    if (each.rank != own_rank || !each.live || each.first != address) continue;
    if (each.columns != columns) emulator_fail("tcgen05.dealloc of another number of columns than was allocated");
    for (unsigned other = 0; other < group; ++other)  // of a pair, either block may free that of both
      for (unsigned column = address; column < address + columns; ++column)
        check_free(tensor_columns[group == 1 ? own_rank : other][column], "tcgen05.dealloc");
    if (group == 2) meet_other_block("tcgen05.dealloc", columns, line);
    allocations[i].live = false;
    return;
  }
  emulator_fail("tcgen05.dealloc of what is not allocated");
}

void relinquish_tensor_memory(unsigned group, int line) {
  use_group(group);
  meet_in_warp(0, line);
  relinquished[own_rank] = true;
}

Layout tensor_layout(uint64_t descriptor, bool by_depths, unsigned rank) {
  const unsigned mode = (unsigned)(descriptor >> 61);
  const unsigned vectors = mode == 2 ? 8 : mode == 4 ? 4 : mode == 6 ? 2 : mode == 0 && !by_depths ? 1 : 0;
  if ((descriptor >> 46 & 7) != 1) emulator_fail("a matrix descriptor of tcgen05.mma without its constant");
  if (!vectors || (descriptor >> 49 & 0xfff)) emulator_fail("a matrix descriptor of tcgen05.mma that is not emulated");
  return {(unsigned)(descriptor & 0x3fff) << 4 | rank << RANK_SHIFT, (unsigned)(descriptor >> 16 & 0x3fff) << 4,
          (unsigned)(descriptor >> 32 & 0x3fff) << 4, vectors};
}

// The current thread reads a vector of an operand for the product that is the last one so far.
void check_product_operand(unsigned address, char *from) {
  Vector &here = vector_at(address);
  const unsigned rank = address >> RANK_SHIFT;
  here.product = tensor_product_count;
  if (rank == own_rank) access(from, VECTOR, false, !here.copy);
  if (!here.copy) {
    check_fenced(from, VECTOR, rank);
    return;
  }
  const BulkCopy &copy = bulk_copies[here.copy - 1];
  if (seen[current][MAX_THREADS + copy.barrier] <= copy.phase)
    fail_at("tcgen05.mma reads byte %u of shared memory, which a bulk copy writes, with no wait and tcgen05.fence between",
            byte_of(address));
}

// The elements of both operands: rows of all blocks that share the product, then the columns, of which each block has a part.
template <typename F> void gather_operands(const TensorProduct &product, uint16_t *elements, F check) {
  const unsigned part = product.columns / product.blocks;
  for (unsigned i = 0; i < product.blocks; ++i) {
    gather_matrix(product.left[i], product.left_by_depths, LANES, elements + i * LANES * DEPTHS, check);
    gather_matrix(product.right[i], product.right_by_depths, part, elements + (product.blocks * LANES + i * part) * DEPTHS, check);
  }
}

// Only the next products of the thread can have the rows that one has kept; those read what it has read.
void keep_rows(uint64_t left, unsigned instruction, emulator_tensor_kind kind, emulator_rows rows) {
  auto &kept = kept_rows[own_rank];
  instruction &= 31 << 24 | 1 << 15 | 7 << 7;
  const bool is_same = kept.holds && kept.matrix == left && kept.instruction == instruction && kept.kind == kind && kept.thread == current;
  if (!is_same && (rows == emulator_rows_use || rows == emulator_rows_lastuse))
    emulator_fail("tcgen05.mma reuses rows that the one before has not kept");
  kept = {rows == emulator_rows_fill || rows == emulator_rows_use, left, instruction, current, kind};
}

void multiply_into_tensor_memory(unsigned memory, uint64_t left, uint64_t right, unsigned instruction, bool accumulates,
                                 emulator_tensor_kind kind, emulator_rows rows, unsigned group) {
  begin_clocks();
  use_group(group);
  const unsigned columns = (instruction >> 17 & 63) * 8, sums = instruction >> 4 & 3, depth = kind == emulator_tensor_f16 ? 16 : kind == emulator_tensor_tf32 ? 8 : 32;
  const unsigned left_type = instruction >> 7 & 7, right_type = instruction >> 10 & 7;
  const bool transposes = instruction >> 15 & 3;
  if (instruction & 0xe080604fu) emulator_fail("an instruction descriptor with sparsity, signs or reserved bits is not emulated");
  if (sums != (kind == emulator_tensor_i8 ? 2 : 1)) emulator_fail("an instruction descriptor with another type of sums than its kind");
  const bool has_types = kind == emulator_tensor_tf32 ? left_type == 2 && right_type == 2 : left_type <= 1 && right_type <= 1;
  if (!has_types || (kind == emulator_tensor_f16 && left_type != right_type))
    emulator_fail("an instruction descriptor with types that are not emulated");
  if ((instruction >> 24 & 31) * 16 != LANES * group) emulator_fail("tcgen05.mma of other than 128 rows of each block is not emulated");
  if (group == 2 && (own_rank % 2 || columns % 32))
    emulator_fail(own_rank % 2 ? "tcgen05.mma of a pair by its second block" : "tcgen05.mma of a pair with a number of columns that it does not have");
  if (!columns || columns > 256 || (kind == emulator_tensor_i8 && columns > 32 && columns % 16))
    emulator_fail("tcgen05.mma with a number of columns that it does not have");
  if (depth != 16 && transposes) emulator_fail("tcgen05.mma of other than 16 bits across the depth is not emulated");
  if (memory >> 16) emulator_fail("tcgen05.mma to other lanes than from 0 on");
  keep_rows(left, instruction, kind, rows);
  for (unsigned i = 0; i < group; ++i) allocation_of(own_rank + i, memory, columns, "tcgen05.mma to columns");
  for (unsigned i = 0; i < group * columns; ++i) {
    const unsigned column = memory + i % columns;
    TensorColumn &here = tensor_columns[own_rank + i / columns][column];
    if (accumulates && !here.product) fail_at("tcgen05.mma adds to column %u of tensor memory, which nothing has written", column);
    const TensorProduct *before = here.product ? &tensor_products[here.product - 1] : nullptr;
    const bool follows = before && before->thread == current && before->columns == columns && before->memory == memory;
    if (follows) before = nullptr, here.product = 0;
    check_free(here, "tcgen05.mma to columns");
    here.product = tensor_product_count + 1;
  }
  if (tensor_product_count == tensor_product_space) {
    tensor_product_space = tensor_product_space * 2 + 64;
    tensor_products = (TensorProduct *)realloc(tensor_products, tensor_product_space * sizeof(TensorProduct));
  }
  TensorProduct &product = tensor_products[tensor_product_count++];
  uint16_t *elements = (uint16_t *)malloc((group * LANES + columns) * DEPTHS * sizeof(uint16_t));
  product = {own_rank, group, {}, {}, (instruction >> 15 & 1) != 0, (instruction >> 16 & 1) != 0,
             accumulates, false, columns, memory, kind, left_type, right_type, current, elements};
  for (unsigned i = 0; i < group; ++i) {
    product.left[i] = tensor_layout(left, product.left_by_depths, own_rank + i);
    product.right[i] = tensor_layout(right, product.right_by_depths, own_rank + i);
  }
  gather_operands(product, elements, check_product_operand);
}

template <typename T, typename F>
void add_tensor_products(const TensorProduct &product, unsigned depth, F value) {
  static T left[MAX_CLUSTER * LANES][2 * DEPTHS], right[MAX_COLUMNS][2 * DEPTHS];
  const unsigned rows = product.blocks * LANES;
  const uint16_t *of_right = product.elements + rows * DEPTHS;
  for (unsigned row = 0; row < rows; ++row)
    for (unsigned k = 0; k < depth; ++k) left[row][k] = value(product.elements + row * DEPTHS, k, product.left_type);
  for (unsigned column = 0; column < product.columns; ++column)
    for (unsigned k = 0; k < depth; ++k) right[column][k] = value(of_right + column * DEPTHS, k, product.right_type);
  for (unsigned row = 0; row < rows; ++row)
    for (unsigned column = 0; column < product.columns; ++column) {
      T sum = 0;
      uint32_t &to = tensor_memory[product.rank + row / LANES][row % LANES][product.memory + column];
      if (product.accumulates) memcpy(&sum, &to, 4);
      for (unsigned k = 0; k < depth; ++k) sum += left[row][k] * right[column][k];
      memcpy(&to, &sum, 4);
    }
}

void complete(TensorProduct &product) {
  product.done = true;
  for (unsigned i = 0; i < product.blocks; ++i)
    if (has_ended(product.rank + i)) {
      say("tcgen05.mma of thread %u is not complete when a block that shares it has ended", product.thread);
      failed = true;
      return;
    }
  const unsigned elements = (product.blocks * LANES + product.columns) * DEPTHS;
  uint16_t *now = (uint16_t *)malloc(elements * sizeof(uint16_t));
  gather_operands(product, now, [](unsigned, char *) {});
  if (memcmp(now, product.elements, elements * sizeof(uint16_t))) {
    say("an operand of tcgen05.mma of thread %u has changed before its commit has arrived", product.thread);
    failed = true;
  }
  free(now);
  if (product.kind == emulator_tensor_f16)
    add_tensor_products<float>(product, 16, [](const uint16_t *row, unsigned k, unsigned type) { return value_of(row[k], type == 1); });
  else if (product.kind == emulator_tensor_tf32)
    add_tensor_products<float>(product, 8, [](const uint16_t *row, unsigned k, unsigned) {
      uint32_t bits;
      memcpy(&bits, row + 2 * k, 4);
      return emulator_tf32_value(bits);
    });
  else if (product.kind == emulator_tensor_i8)
    add_tensor_products<int>(product, 32, [](const uint16_t *row, unsigned k, unsigned type) {
      const uint8_t byte = ((const uint8_t *)row)[k];
      return type ? (int)(int8_t)byte : (int)byte;
    });
  else
    add_tensor_products<float>(product, 32, [](const uint16_t *row, unsigned k, unsigned type) {
      return emulator_float8_value(((const uint8_t *)row)[k], type == 1);
    });
}

void commit_at(unsigned address) {
  Barrier &barrier = barrier_at(address);
  if (tensor_commit_count == tensor_commit_space) {
    tensor_commit_space = tensor_commit_space * 2 + 64;
    tensor_commits = (TensorCommit *)realloc(tensor_commits, tensor_commit_space * sizeof(TensorCommit));
  }
  uint32_t *clock = (uint32_t *)malloc(sizeof(uint32_t) * CLOCKS);
  memcpy(clock, clocks[current], sizeof(uint32_t) * CLOCKS);
  tensor_commits[tensor_commit_count++] = {current, tensor_product_count, (unsigned)(&barrier - barriers), 0, clock, false};
}

// At the address, or of a multicast, at the same address of each block in `ranks`, by bits.
void commit_tensor_products(unsigned address, unsigned ranks, unsigned group) {
  use_group(group);
  if (ranks >> cluster) emulator_fail("tcgen05.commit to a block that the cluster does not have");
  if (!ranks) commit_at(address);
  for (unsigned rank = 0; rank < cluster; ++rank)
    if (ranks >> rank & 1) commit_at(map_to_rank(address, rank));
  ++clocks[current][current];
}

// Completes products that a commit tracks, in their order; true if there were any. `late` as of `complete_copies`.
bool complete_tensor_products(bool late) {
  if (seed == 0 && !late) return false;
  bool any = false;
  for (unsigned i = 0; i < tensor_commit_count && !failed && !(seed >= 2 && any); ++i) {
    TensorCommit &commit = tensor_commits[i];
    if (commit.done) continue;
    for (unsigned j = 0; j < commit.products; ++j)
      if (tensor_products[j].thread == commit.thread && !tensor_products[j].done) complete(tensor_products[j]);
    if (failed) return true;
    Barrier &barrier = barriers[commit.barrier];
    if (arrives_too_late(barrier, "tcgen05.commit")) return true;
    if (!barrier.missing) {
      say("tcgen05.commit arrives at an mbarrier whose phase has all arrivals");
      failed = true;
      return true;
    }
    commit.done = any = true;
    commit.phase = barrier.phase;
    acquire(barrier.released, commit.clock);
    --barrier.missing;
    advance(barrier);
  }
  return any;
}

void load_tensor_memory(uint32_t *const *registers, unsigned count, unsigned address, bool by_rows, int line) {
  begin_clocks();
  meet_in_warp(address, line);
  const unsigned lane = current % 32, own = current / 32 % 4 * 32, first_lane = address >> 16, first = address & 0xffff;
  const unsigned columns = by_rows ? count : 2 * count;
  if (first_lane != own && (by_rows || first_lane != own + 16))
    fail_at("tcgen05.ld of warp %u from lane %u, of lanes from %u to %u that it reaches", current / 32, first_lane, own, own + 31);
  allocation_of(own_rank, first, columns, "tcgen05.ld");
  for (unsigned column = first; column < first + columns; ++column) {
    TensorColumn &here = tensor_columns[own_rank][column];
    if (!here.product) fail_at("tcgen05.ld of column %u of tensor memory, which nothing has written", column);
    if (!knows_product(seen[current], here.product - 1))
      fail_at("tcgen05.ld of column %u of tensor memory, which tcgen05.mma writes, with no commit, wait and tcgen05.fence between", column);
    here.loads[current / 32] = {current, 0, TensorLoad::BEGUN};
  }
  LoadedRegister *&loaded = loaded_registers[current];
  loaded = (LoadedRegister *)realloc(loaded, (loaded_count[current] + count) * sizeof(LoadedRegister));
  for (unsigned i = 0; i < count; ++i) {
    const unsigned row = by_rows ? lane : lane / 4 + i / 2 % 2 * 8;
    const unsigned column = first + (by_rows ? i : i / 4 * 8 + lane % 4 * 2 + i % 2);
    loaded[loaded_count[current]++] = {registers[i], tensor_memory[own_rank][first_lane + row][column], column};
    *registers[i] = 0xffffffffu;
  }
}

void set_load_states(uint8_t from, decltype(TensorLoad::state) to) {
  for (TensorColumn &column : tensor_columns[own_rank]) {
    TensorLoad &load = column.loads[current / 32];
    if (load.state == from) load = {current, own_clock(), to};
  }
}

void wait_for_tensor_loads(int line) {
  meet_in_warp(0, line);
  for (unsigned i = 0; i < loaded_count[current]; ++i) {
    const LoadedRegister &loaded = loaded_registers[current][i];
    if (*loaded.to != 0xffffffffu) emulator_fail("a register of tcgen05.ld has changed before tcgen05.wait::ld");
    *loaded.to = loaded.value;
  }
  loaded_count[current] = 0;
  set_load_states(TensorLoad::BEGUN, TensorLoad::WAITED);
}

void order_tensor_memory(bool before) {
  begin_clocks();
  if (before) set_load_states(TensorLoad::WAITED, TensorLoad::ORDERED);
  else memcpy(seen[current], clocks[current], sizeof clocks[current]);
}

// When all threads of a block have ended.
void check_tensor_memory() {
  const char *what = nullptr;
  for (unsigned i = 0; i < allocation_count; ++i)
    if (allocations[i].live) what = "gives back the tensor memory that it has allocated";
  for (unsigned i = 0; i < tensor_product_count; ++i)
    if (!tensor_products[i].done) what = "has waited for tcgen05.mma";
  for (unsigned i = 0; i < count; ++i)
    if (loaded_count[i]) what = "has waited for tcgen05.ld";
  if (!what) return;
  say("block (%u, %u, %u) ends before it %s", blockIdx.x, blockIdx.y, blockIdx.z, what);
  failed = true;
}

// Clusters of blocks that run at once (`__cluster_dims__`): a part of runtime.cpp.
//
// The threads of all blocks of a cluster are in `threads`, those of a block from a multiple of a warpgroup's on. Variables of a
// block, such as `blockIdx` and what its static arrays hold, are those of the block whose thread runs; `enter_block` exchanges
// them. An address of shared memory has the block's rank in the cluster above its 24 bits (PTX ISA, "shared::cluster").

constexpr unsigned MAX_CLUSTER = 2, RANK_SHIFT = 24, OFFSET_MASK = (1u << RANK_SHIFT) - 1;

struct Block {
  uint3 index;
  uint32_t number, epoch, begin;
  Range static_shared, dynamic_shared;
  char arrays[MAX_STATIC_SHARED];  // what the static arrays hold while another block runs
};

Block blocks[MAX_CLUSTER];
unsigned cluster, own_rank, block_threads, block_slots;  // blocks of a cluster; of a block, its threads, and what they take of `threads`
struct {
  const char *what;
  unsigned operand, thread;
  bool waits;
} pair_meeting;  // of an instruction that a warp of each block of a pair executes

unsigned rank_of(unsigned thread) { return thread / block_slots; }

void enter_block(unsigned rank) {
  if (rank == own_rank) return;
  const size_t bytes = (size_t)(kernel->shared_end - kernel->shared);
  Block &from = blocks[own_rank], &to = blocks[rank];
  from.epoch = epoch, from.static_shared = static_shared, from.dynamic_shared = dynamic_shared;
  memcpy(from.arrays, kernel->shared, bytes);
  blockIdx = to.index, block_number = to.number, epoch = to.epoch, block_epoch = to.begin;
  static_shared = to.static_shared, dynamic_shared = to.dynamic_shared;
  memcpy(kernel->shared, to.arrays, bytes);
  emulator_dynamic_shared = dynamic_shared.begin;
  own_rank = rank;
}

void begin_cluster() {
  for (unsigned rank = 0; rank < cluster; ++rank) {
    enter_block(rank);
    block_epoch = blocks[rank].begin = epoch = ++last_epoch;
  }
  pair_meeting.waits = false;
}

bool has_ended(unsigned rank) {
  for (unsigned i = 0; i < block_slots; ++i)
    if (threads[rank * block_slots + i].state != ENDED) return false;
  return true;
}

// Lets a block's threads go on that are at a barrier, of the block or of the cluster.
void release_at_barrier(unsigned rank, bool any) {
  enter_block(rank);
  for (unsigned i = rank * block_slots; i < (rank + 1) * block_slots; ++i) {
    if (threads[i].state == ENDED) continue;
    threads[i].state = READY;
    threads[i].ordered_fences = threads[i].fences;
    threads[i].result = any;
  }
  epoch = ++last_epoch;
}

// barrier.cluster: all threads of the cluster meet that have not ended.
bool release_cluster() {
  unsigned met[MAX_THREADS], number = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (threads[i].state == ENDED) continue;
    if (threads[i].state != AT_CLUSTER) return false;
    met[number++] = i;
  }
  for (unsigned rank = 0; rank < cluster; ++rank) release_at_barrier(rank, false);
  meet(met, number);
  return number != 0;
}

void wait_for_cluster(int line) {
  threads[current].line = line;
  threads[current].state = AT_CLUSTER;
  pause_thread();
}

unsigned map_to_rank(unsigned address, unsigned rank) {
  if (rank >= cluster) emulator_fail("mapa to a block that the cluster does not have");
  return (address & OFFSET_MASK) | rank << RANK_SHIFT;
}

// Instructions with .shared::cta have addresses in the block's own shared memory.
void check_own(unsigned address) {
  if (address >> RANK_SHIFT != own_rank) emulator_fail("an instruction of a block's own shared memory at an address in another block's");
}

// The first lane of a warp waits until one of the other block of its pair executes the same instruction.
void meet_other_block(const char *what, unsigned operand, int line) {
  if (cluster != 2) emulator_fail("a tcgen05 instruction of a pair of blocks in a cluster that is none");
  if (pair_meeting.waits && rank_of(pair_meeting.thread) != own_rank) {
    if (pair_meeting.what != what || pair_meeting.operand != operand)
      emulator_fail("the blocks of a pair execute different tcgen05 instructions that both must execute");
    threads[pair_meeting.thread].state = READY;
    pair_meeting.waits = false;
    return;
  }
  pair_meeting = {what, operand, current, true};
  threads[current].line = line;
  threads[current].state = AT_PAIR;
  pause_thread();
}

bool explain_cluster() {
  for (unsigned i = 0; i < count; ++i) {
    if (threads[i].state != AT_PAIR && threads[i].state != AT_CLUSTER) continue;
    enter_block(rank_of(i));
    const uint3 &index = threads[i].index;
    const char *what = threads[i].state == AT_PAIR ? pair_meeting.what : "barrier.cluster";
    say("thread (%u, %u, %u) of block (%u, %u, %u) waits in %s (line %d) for the other block of its %s", index.x, index.y, index.z,
        blockIdx.x, blockIdx.y, blockIdx.z, what, threads[i].line, threads[i].state == AT_PAIR ? "pair" : "cluster");
    return true;
  }
  return false;
}

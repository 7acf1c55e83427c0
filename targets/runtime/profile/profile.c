#include "profile.h"

#include "machine/cpu.h"
#include "model.h"
#include "threads/pool.h"
#include "machine/system.h"

static const nnefc_profile_table *const table = &nnefc_this_model.profile;

/* The caller's memory for chunks, null if they are not recorded; each record takes the next slot. */
static struct {
    nnefc_piece *_Atomic pieces;
    uint64_t room;
    atomic_uint_least64_t count;
    atomic_uint_least32_t noting; /* threads that look at the memory, or write there */
    atomic_flag changing;         /* the caller removes or replaces the memory */
} trace = {.changing = ATOMIC_FLAG_INIT};

static void note(int32_t kernel, int32_t thread, int64_t begin, uint64_t took) {
    if (atomic_load_explicit(&trace.pieces, memory_order_relaxed) == NULL) return;
    atomic_fetch_add(&trace.noting, 1);
    nnefc_piece *pieces = atomic_load(&trace.pieces); /* after `noting`: who takes it away sees the one or this the other */
    if (pieces != NULL) {
        uint64_t slot = atomic_fetch_add_explicit(&trace.count, 1, memory_order_relaxed);
        if (slot < trace.room) pieces[slot] = (nnefc_piece){kernel, thread, (uint64_t)begin, took};
    }
    atomic_fetch_sub(&trace.noting, 1);
}

int64_t nnefc_profile_begin(int32_t slot) {
    nnefc_worker *worker = nnefc_pool_current();
    if (worker != NULL) worker->kernel = slot;
    return nnefc_nanoseconds();
}

int32_t nnefc_profile_end(int32_t slot, int64_t begin) {
    nnefc_profile_sums *sums = &table->sums[slot];
    uint64_t took = (uint64_t)(nnefc_nanoseconds() - begin);
    atomic_fetch_add_explicit(&sums->calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&sums->nanoseconds, took, memory_order_relaxed);
    atomic_store_explicit(&sums->last_begin, (uint64_t)begin, memory_order_relaxed);
    atomic_store_explicit(&sums->last_nanoseconds, took, memory_order_relaxed);
    note(slot, NNEFC_WHOLE_CALL, begin, took);
    return 0;
}

int64_t nnefc_profile_piece_begin(void) {
    return atomic_load_explicit(&trace.pieces, memory_order_relaxed) == NULL ? 0 : nnefc_nanoseconds();
}

void nnefc_profile_piece_end(int32_t slot, uint32_t thread, int64_t begin) {
    if (begin != 0) note(slot, (int32_t)thread, begin, (uint64_t)(nnefc_nanoseconds() - begin));
}

uint64_t nnefc_profile_trace(nnefc_piece *pieces, uint64_t room) {
    while (atomic_flag_test_and_set(&trace.changing)) nnefc_cpu_relax();
    atomic_store(&trace.pieces, NULL);
    while (atomic_load(&trace.noting) > 0) nnefc_cpu_relax();
    uint64_t count = atomic_exchange(&trace.count, 0);
    trace.room = room;
    atomic_store(&trace.pieces, room > 0 ? pieces : NULL);
    atomic_flag_clear(&trace.changing);
    return count;
}

uint32_t nnefc_profile(nnefc_kernel_times *times, uint32_t count) {
    nnefc_choose_level();
    for (uint32_t i = 0; i < count && i < table->slots; ++i) {
        nnefc_profile_sums *sums = &table->sums[i];
        times[i] = table->kernels[i];
        times[i].calls = atomic_load_explicit(&sums->calls, memory_order_relaxed);
        times[i].nanoseconds = atomic_load_explicit(&sums->nanoseconds, memory_order_relaxed);
        times[i].last_begin = atomic_load_explicit(&sums->last_begin, memory_order_relaxed);
        times[i].last_nanoseconds = atomic_load_explicit(&sums->last_nanoseconds, memory_order_relaxed);
    }
    return table->slots;
}

void nnefc_profile_reset(void) {
    nnefc_choose_level();
    for (uint32_t i = 0; i < table->slots; ++i) {
        atomic_store_explicit(&table->sums[i].calls, 0, memory_order_relaxed);
        atomic_store_explicit(&table->sums[i].nanoseconds, 0, memory_order_relaxed);
    }
}

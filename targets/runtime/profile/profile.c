#include "profile.h"

#include "model.h"
#include "system.h"

static const nnefc_profile_table *const table = &nnefc_this_model.profile;

int64_t nnefc_profile_begin(void) { return nnefc_nanoseconds(); }

int32_t nnefc_profile_end(int32_t place, int64_t begin) {
    nnefc_profile_sums *sums = &table->sums[place];
    uint64_t took = (uint64_t)(nnefc_nanoseconds() - begin);
    atomic_fetch_add_explicit(&sums->calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&sums->nanoseconds, took, memory_order_relaxed);
    atomic_store_explicit(&sums->last_begin, (uint64_t)begin, memory_order_relaxed);
    atomic_store_explicit(&sums->last_nanoseconds, took, memory_order_relaxed);
    return 0;
}

uint32_t nnefc_profile(nnefc_kernel_times *times, uint32_t count) {
    nnefc_choose_level();
    for (uint32_t i = 0; i < count && i < table->places; ++i) {
        nnefc_profile_sums *sums = &table->sums[i];
        times[i] = table->kernels[i];
        times[i].calls = atomic_load_explicit(&sums->calls, memory_order_relaxed);
        times[i].nanoseconds = atomic_load_explicit(&sums->nanoseconds, memory_order_relaxed);
        times[i].last_begin = atomic_load_explicit(&sums->last_begin, memory_order_relaxed);
        times[i].last_nanoseconds = atomic_load_explicit(&sums->last_nanoseconds, memory_order_relaxed);
    }
    return table->places;
}

void nnefc_profile_reset(void) {
    nnefc_choose_level();
    for (uint32_t i = 0; i < table->places; ++i) {
        atomic_store_explicit(&table->sums[i].calls, 0, memory_order_relaxed);
        atomic_store_explicit(&table->sums[i].nanoseconds, 0, memory_order_relaxed);
    }
}

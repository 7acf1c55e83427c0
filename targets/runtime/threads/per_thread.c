/* Open addressing: a thread's value is within a few slots of its hash. When all of these are other threads',
 * there is one more table, a larger one. Only the thread itself makes or ends its entry, so that what a thread looks for
 * stands still, and no table is freed while there is an entry. */
#include "threads/per_thread.h"

#include <stdlib.h>

enum { GROWTH_BITS = 3 };

/* The first of the positions for a thread's value that is `owner`'s, null if none is. There are a few more in larger tables. */
static nnefc_thread_value *slot_of(const nnefc_thread_table *table, uintptr_t thread, uintptr_t owner) {
    uint32_t first = (uint32_t)(nnefc_spread_thread(thread) >> (64 - table->bits)), last = (UINT32_C(1) << table->bits) - 1;
    for (uint32_t i = 0; i < table->bits; i++) {
        nnefc_thread_value *found = &table->values[(first + i) & last];
        if (atomic_load_explicit(&found->thread, memory_order_relaxed) == owner) return found;
    }
    return NULL;
}

nnefc_thread_value *nnefc_per_thread_find(const nnefc_per_thread *variable, uintptr_t thread) {
    for (const nnefc_thread_table *table = variable; table != NULL; table = atomic_load(&table->next)) {
        nnefc_thread_value *found = slot_of(table, thread, thread);
        if (found != NULL) return found;
    }
    return NULL;
}

/* The table after one, made if there is none; null if there is no memory. */
static nnefc_thread_table *next_table(nnefc_thread_table *table) {
    nnefc_thread_table *next = atomic_load(&table->next);
    if (next != NULL) return next;
    uint32_t bits = table->bits + GROWTH_BITS;
    nnefc_thread_table *made = calloc(1, sizeof *made + (sizeof *made->values << bits));
    if (made == NULL) return NULL;
    made->bits = bits;
    made->values = (nnefc_thread_value *)(made + 1);
    if (atomic_compare_exchange_strong(&table->next, &next, made)) return made;
    free(made); /* another thread was faster */
    return next;
}

/* A new entry for a thread that has none; null if there is no memory. */
static nnefc_thread_value *take_slot(nnefc_per_thread *variable, uintptr_t thread) {
    for (nnefc_thread_table *table = variable; table != NULL; table = next_table(table))
        for (nnefc_thread_value *found; (found = slot_of(table, thread, 0)) != NULL;) {
            uintptr_t unowned = 0;
            if (atomic_compare_exchange_strong(&found->thread, &unowned, thread)) return found;
        }
    return NULL;
}

bool nnefc_per_thread_set(nnefc_per_thread *variable, void *value) {
    uintptr_t thread = nnefc_this_thread();
    nnefc_thread_value *entry = nnefc_per_thread_find(variable, thread);
    if (entry == NULL && value == NULL) return true;
    if (entry == NULL) entry = take_slot(variable, thread);
    if (entry == NULL) return false;
    entry->value = value;
    if (value == NULL) atomic_store_explicit(&entry->thread, 0, memory_order_release);
    return true;
}

static bool is_empty(const nnefc_thread_table *table) {
    for (uint32_t i = 0; i < UINT32_C(1) << table->bits; i++)
        if (atomic_load_explicit(&table->values[i].thread, memory_order_relaxed) != 0) return false;
    return true;
}

void nnefc_per_thread_end(nnefc_per_thread *variable) {
    /* when a process ends, other threads may still be at work: their memory goes with the process */
    for (nnefc_thread_table *table = variable; table != NULL; table = atomic_load(&table->next))
        if (!is_empty(table)) return;
    for (nnefc_thread_table *table = atomic_exchange(&variable->next, NULL), *next; table != NULL; table = next) {
        next = atomic_load(&table->next);
        free(table);
    }
}

/* Launches of a pool whose epochs come again: each task is done once in each. Prints "ok". */
#include <stdio.h>
#include <stdlib.h>

#include "threads/pool_state.h"

enum { THREADS = 4, TASKS = 64, LAUNCHES = 10 };

static atomic_int done[TASKS];

static int task(int number, nnefc_parallel_environment *environment, void *data) {
    (void)environment, (void)data;
    atomic_fetch_add(&done[number], 1);
    return 0;
}

static void call_each(void *threads, uint32_t count, void (*work)(void *, uint32_t), void *argument) {
    (void)threads;
    for (uint32_t i = 0; i < count; i++) work(argument, i);
}

static void check(nnefc_parallel_for *parallel_for) {
    nnefc_options options = {0};
    options.parallel_for = parallel_for;
    nnefc_pool *pool = nnefc_pool_create(&options, THREADS, 0); /* all have done a piece of launch 1 */
    atomic_store(&pool->announced, (uint64_t)(UINT32_MAX - 1) << 32);
    for (int i = 0; i < LAUNCHES; i++) {
        int tasks = i < 2 ? 2 : TASKS; /* two launches in which not all do a piece */
        nnefc_pool_launch(&pool->slots[0].worker, task, NULL, tasks);
        for (int j = 0; j < tasks; j++)
            if (atomic_exchange(&done[j], 0) != 1) exit(1);
    }
    nnefc_pool_destroy(pool);
}

int main(void) {
    check(NULL);
    check(call_each);
    puts("ok");
    return 0;
}

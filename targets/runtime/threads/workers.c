/* Threads of WebAssembly. An instance of a module is one thread, and only the program around it can start one, in a worker. So
 * the program lends threads before they are needed: it makes a record (nnefc_lend), lets a worker instantiate the same module
 * with the same memory and call nnefc_run_lent, which never returns, and says that it has begun (nnefc_lent). A thread that
 * starts takes such a record, and gives it back when it ends. `load` of nnefc.mjs does this.
 *
 * A browser's own thread must not wait: it looks again and again instead, which is for short times alone anyway. */
#include "machine/system.h"

#if defined(NNEFC_WORKERS)

#include <stdatomic.h>
#include <stdlib.h>

enum { LOOKING_NANOSECONDS = 250 }; /* about what waiting.c does between two questions for the time */

enum { IDLE, BUSY };                   /* states of a lent thread, */
enum { FREE, HELD, HELD_AND_WANTED };  /* and of a lock */

typedef struct lent_thread {
    void *stack; /* where it begins, its end in memory: what nnefc_run_lent reads */
    void *own;   /* memory of its _Thread_local variables */
    struct lent_thread *next;
    atomic_uint state;
    void *(*body)(void *);
    void *argument;
} lent_thread;

_Static_assert(sizeof(atomic_uint) == sizeof(pthread_mutex_t), "the lock of posix_threads.h");
_Static_assert(sizeof(atomic_uint) == sizeof(pthread_cond_t), "the condition of posix_threads.h");

static lent_thread *lent; /* those whose workers have begun; only the program's thread changes the list */
static bool program_waits = true;
static _Thread_local struct {
    bool is_lent;
    int64_t time;
} own;

/* From the linker. */
void __wasm_init_tls(void *memory);

/* Functions for the program, on its own thread. */
void *nnefc_lend(void);
void nnefc_lent(lent_thread *thread);
void nnefc_may_wait(int32_t may);

/* Whether the program's thread may wait; it may by default. */
void nnefc_may_wait(int32_t may) { program_waits = may != 0; }

/* A record of a thread, for nnefc_run_lent and nnefc_lent; null if there is no memory. */
void *nnefc_lend(void) {
    lent_thread *thread = calloc(1, sizeof *thread);
    char *stack = nnefc_allocate_aligned(NNEFC_STACK_BYTES);
    void *variables = nnefc_allocate_aligned(__builtin_wasm_tls_size());
    if (thread != NULL && stack != NULL && variables != NULL) {
        thread->stack = stack + NNEFC_STACK_BYTES;
        thread->own = variables;
        return thread;
    }
    nnefc_free_aligned(variables);
    nnefc_free_aligned(stack);
    free(thread);
    return NULL;
}

/* Says that a worker has begun to run the thread. */
void nnefc_lent(lent_thread *thread) {
    thread->next = lent;
    lent = thread;
}

/* nnefc_run_lent(thread), for workers: sets up a stack, which C takes for granted. */
void nnefc_lent_main(lent_thread *thread);

__asm__(
    ".globaltype __stack_pointer, i32\n"
    ".functype nnefc_lent_main (i32) -> ()\n"
    ".section .text.nnefc_run_lent,\"\",@\n"
    ".globl nnefc_run_lent\n"
    ".type nnefc_run_lent,@function\n"
    "nnefc_run_lent:\n"
    "    .functype nnefc_run_lent (i32) -> ()\n"
    "    local.get 0\n"
    "    i32.load 0\n"
    "    global.set __stack_pointer\n"
    "    local.get 0\n"
    "    call nnefc_lent_main\n"
    "    end_function\n");

/* Waits while a word has a value; may return earlier. */
static void wait_while(atomic_uint *word, uint32_t value) {
    if (own.is_lent || program_waits) {
        __builtin_wasm_memory_atomic_wait32((int *)word, (int)value, -1);
        return;
    }
    while (atomic_load(word) == value) continue;
}

/* The address is hidden from the compiler, which would make an offset of what is added to it: the first code that V8 of 2023
 * makes for memory.atomic.notify with an offset may wake no thread. */
static void wake(atomic_uint *word, uint32_t threads) {
    __asm__("" : "+r"(word));
    __builtin_wasm_memory_atomic_notify((int *)word, threads);
}

void nnefc_lent_main(lent_thread *thread) {
    __wasm_init_tls(thread->own);
    own.is_lent = true;
    for (;;) {
        while (atomic_load(&thread->state) == IDLE) wait_while(&thread->state, IDLE);
        thread->body(thread->argument);
        atomic_store(&thread->state, IDLE);
        wake(&thread->state, UINT32_MAX);
    }
}

bool nnefc_start_thread(pthread_t *thread, void *(*body)(void *), void *argument) {
    for (lent_thread *idle = lent; idle != NULL; idle = idle->next) {
        if (atomic_load(&idle->state) != IDLE) continue;
        idle->body = body;
        idle->argument = argument;
        atomic_store(&idle->state, BUSY);
        wake(&idle->state, 1);
        *thread = idle;
        return true;
    }
    return false;
}

int pthread_join(pthread_t thread, void **result) {
    (void)result;
    lent_thread *joined = thread;
    while (atomic_load(&joined->state) == BUSY) wait_while(&joined->state, BUSY);
    return 0;
}

/* Those of a session that is made now. */
uint32_t nnefc_processor_count(void) {
    uint32_t count = 1;
    for (lent_thread *thread = lent; thread != NULL; thread = thread->next) count += atomic_load(&thread->state) == IDLE;
    return count;
}

uintptr_t nnefc_this_thread(void) { return (uintptr_t)&own; }

int64_t nnefc_nanoseconds(void) { return own.time += LOOKING_NANOSECONDS; }

int pthread_mutex_init(pthread_mutex_t *mutex, const void *attributes) {
    (void)attributes;
    atomic_init((atomic_uint *)mutex, FREE);
    return 0;
}

int pthread_mutex_destroy(pthread_mutex_t *mutex) {
    (void)mutex;
    return 0;
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    atomic_uint *state = (atomic_uint *)mutex;
    uint32_t seen = FREE;
    if (atomic_compare_exchange_strong(state, &seen, HELD)) return 0;
    while (atomic_exchange(state, HELD_AND_WANTED) != FREE) wait_while(state, HELD_AND_WANTED);
    return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    atomic_uint *state = (atomic_uint *)mutex;
    if (atomic_exchange(state, FREE) == HELD_AND_WANTED) wake(state, 1);
    return 0;
}

int pthread_cond_init(pthread_cond_t *condition, const void *attributes) {
    (void)attributes;
    atomic_init((atomic_uint *)condition, 0);
    return 0;
}

int pthread_cond_destroy(pthread_cond_t *condition) {
    (void)condition;
    return 0;
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    atomic_uint *signals = (atomic_uint *)condition;
    uint32_t seen = atomic_load(signals);
    pthread_mutex_unlock(mutex);
    wait_while(signals, seen);
    pthread_mutex_lock(mutex);
    return 0;
}

int pthread_cond_signal(pthread_cond_t *condition) {
    atomic_fetch_add((atomic_uint *)condition, 1);
    wake((atomic_uint *)condition, 1);
    return 0;
}

int pthread_cond_broadcast(pthread_cond_t *condition) {
    atomic_fetch_add((atomic_uint *)condition, 1);
    wake((atomic_uint *)condition, UINT32_MAX);
    return 0;
}

#endif

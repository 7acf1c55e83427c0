#if !defined(_WIN32) && !defined(_GNU_SOURCE) /* MinGW has other functions for it */
#define _GNU_SOURCE
#endif
#include "machine/system.h"

#include <stdlib.h>
#include <time.h>

#if defined(_WIN32)
#include <malloc.h>

void *nnefc_allocate_aligned(size_t bytes) { return _aligned_malloc(bytes > 0 ? bytes : 1, NNEFC_ALIGNMENT); }

void nnefc_free_aligned(void *memory) { _aligned_free(memory); }

#else

/* aligned_alloc is younger than some systems that libraries shall load on */
void *nnefc_allocate_aligned(size_t bytes) {
    void *memory = NULL;
    return posix_memalign(&memory, NNEFC_ALIGNMENT, bytes > 0 ? bytes : 1) == 0 ? memory : NULL;
}

void nnefc_free_aligned(void *memory) { free(memory); }

#endif

#if defined(_WIN32)
#include <windows.h>

void *nnefc_allocate_pages(size_t bytes) { return VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE); }

void nnefc_free_pages(void *memory, size_t bytes) {
    (void)bytes;
    if (memory != NULL) VirtualFree(memory, 0, MEM_RELEASE);
}

uintptr_t nnefc_this_thread(void) { return GetCurrentThreadId(); }

int64_t nnefc_nanoseconds(void) {
    LARGE_INTEGER second, now;
    QueryPerformanceFrequency(&second);
    QueryPerformanceCounter(&now);
    int64_t remainder = now.QuadPart % second.QuadPart; /* apart, for the number of nanoseconds may not fit in between */
    return now.QuadPart / second.QuadPart * 1000000000 + remainder * 1000000000 / second.QuadPart;
}

static int64_t process_number(void) { return GetCurrentProcessId(); }

bool nnefc_start_thread(pthread_t *thread, void *(*body)(void *), void *argument) {
    /* a thread's function returns 32 bits, which no caller uses; it is called in the same way */
    LPTHREAD_START_ROUTINE start = (LPTHREAD_START_ROUTINE)(void (*)(void))body;
    *thread = CreateThread(NULL, NNEFC_STACK_BYTES, start, argument, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    return *thread != NULL;
}

int pthread_join(pthread_t thread, void **result) {
    (void)result;
    WaitForSingleObject(thread, INFINITE);
    return !CloseHandle(thread);
}

_Static_assert(sizeof(SRWLOCK) == sizeof(pthread_mutex_t), "the lock of posix_threads.h");
_Static_assert(sizeof(CONDITION_VARIABLE) == sizeof(pthread_cond_t), "the condition of posix_threads.h");

int pthread_mutex_init(pthread_mutex_t *mutex, const void *attributes) {
    (void)attributes;
    InitializeSRWLock((SRWLOCK *)mutex);
    return 0;
}

int pthread_mutex_destroy(pthread_mutex_t *mutex) {
    (void)mutex;
    return 0;
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    AcquireSRWLockExclusive((SRWLOCK *)mutex);
    return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    ReleaseSRWLockExclusive((SRWLOCK *)mutex);
    return 0;
}

int pthread_cond_init(pthread_cond_t *condition, const void *attributes) {
    (void)attributes;
    InitializeConditionVariable((CONDITION_VARIABLE *)condition);
    return 0;
}

int pthread_cond_destroy(pthread_cond_t *condition) {
    (void)condition;
    return 0;
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    return !SleepConditionVariableSRW((CONDITION_VARIABLE *)condition, (SRWLOCK *)mutex, INFINITE, 0);
}

int pthread_cond_signal(pthread_cond_t *condition) {
    WakeConditionVariable((CONDITION_VARIABLE *)condition);
    return 0;
}

int pthread_cond_broadcast(pthread_cond_t *condition) {
    WakeAllConditionVariable((CONDITION_VARIABLE *)condition);
    return 0;
}

#elif defined(NNEFC_WORKERS)

static int64_t process_number(void) { return 0; }

#elif defined(__wasi__)

int64_t nnefc_nanoseconds(void) { return 0; }

static int64_t process_number(void) { return 0; }

bool nnefc_start_thread(pthread_t *thread, void *(*body)(void *), void *argument) {
    (void)thread, (void)body, (void)argument;
    return false;
}

/* One thread waits for no other. */
int pthread_join(pthread_t thread, void **result) { return (void)thread, (void)result, 0; }
int pthread_mutex_init(pthread_mutex_t *mutex, const void *attributes) { return (void)mutex, (void)attributes, 0; }
int pthread_mutex_destroy(pthread_mutex_t *mutex) { return (void)mutex, 0; }
int pthread_mutex_lock(pthread_mutex_t *mutex) { return (void)mutex, 0; }
int pthread_mutex_unlock(pthread_mutex_t *mutex) { return (void)mutex, 0; }
int pthread_cond_init(pthread_cond_t *condition, const void *attributes) { return (void)condition, (void)attributes, 0; }
int pthread_cond_destroy(pthread_cond_t *condition) { return (void)condition, 0; }
int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) { return (void)condition, (void)mutex, 0; }
int pthread_cond_signal(pthread_cond_t *condition) { return (void)condition, 0; }
int pthread_cond_broadcast(pthread_cond_t *condition) { return (void)condition, 0; }

#else
#include <signal.h>
#include <unistd.h>

int64_t nnefc_nanoseconds(void) {
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t process_number(void) { return getpid(); }

bool nnefc_start_thread(pthread_t *thread, void *(*body)(void *), void *argument) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_attr_setstacksize(&attributes, NNEFC_STACK_BYTES) == 0 &&
                   pthread_create(thread, &attributes, body, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

#endif

/* Numbers of processes alone would not do: with namespaces inside each other, parent and child may both be number 1. So the
 * number is in a page of its own, which Linux, from 4.14 on, clears in forked children; older ones keep it there. Where it is cleared,
 * the mark tells without a call of the system, which takes as long as a small kernel. */
struct nnefc_process {
    int64_t number;
    bool is_cleared; /* in forked children */
};

bool nnefc_process_is_own(const nnefc_process *process) { return process->is_cleared || process->number == process_number(); }

#if defined(__linux__) || defined(__APPLE__) || defined(__FreeBSD__)
#include <sys/mman.h>

void *nnefc_allocate_pages(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
#if defined(__linux__)
#if !defined(MADV_NOHUGEPAGE)
#define MADV_NOHUGEPAGE 15
#endif
    (void)madvise(memory, bytes, MADV_NOHUGEPAGE); /* a first byte would take 2 MB */
#endif
    return memory;
}

void nnefc_free_pages(void *memory, size_t bytes) {
    if (memory != NULL) munmap(memory, bytes);
}

#elif !defined(_WIN32)

void *nnefc_allocate_pages(size_t bytes) { return (void)bytes, NULL; }

void nnefc_free_pages(void *memory, size_t bytes) { (void)memory, (void)bytes; }

#endif

#if defined(__linux__)
#if !defined(MADV_WIPEONFORK)
#define MADV_WIPEONFORK 18
#endif

nnefc_process *nnefc_process_create(void) {
    nnefc_process *process =
        mmap(NULL, sizeof *process, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (process == MAP_FAILED) return NULL;
    bool is_checked = madvise(process, sizeof *process, -1) != 0; /* emulators may accept any advice, and ignore it */
    process->is_cleared = madvise(process, sizeof *process, MADV_WIPEONFORK) == 0 && is_checked;
    process->number = process_number();
    return process;
}

void nnefc_process_free(nnefc_process *process) {
    if (process != NULL) munmap(process, sizeof *process);
}

#else

nnefc_process *nnefc_process_create(void) {
    nnefc_process *process = calloc(1, sizeof *process);
    if (process != NULL) process->number = process_number();
    return process;
}

void nnefc_process_free(nnefc_process *process) { free(process); }

#endif

/* Determines the number of processors that a session may use. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "machine/system.h"

#if defined(__linux__)
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* Where the system shows control groups; tests have others. */
#if !defined(NNEFC_OWN_GROUPS)
#define NNEFC_OWN_GROUPS "/proc/self/cgroup"
#endif
#if !defined(NNEFC_GROUPS)
#define NNEFC_GROUPS "/sys/fs/cgroup"
#endif

static uint32_t minimum(uint32_t a, uint32_t b) { return a < b ? a : b; }

static uint32_t affinity(void) {
    for (size_t capacity = 1024; capacity <= 1u << 20; capacity *= 4) { /* the kernel refuses sets that are too small */
        cpu_set_t *set = CPU_ALLOC(capacity);
        if (set == NULL) break;
        size_t bytes = CPU_ALLOC_SIZE(capacity);
        int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) return (uint32_t)count;
    }
    return 1;
}

/* The first line of a file, without its end; false if there is no such file. */
static bool read_line(const char *folder, const char *name, char *line, int capacity) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return false;
    FILE *file = fopen(path, "r");
    if (file == NULL) return false;
    bool found = fgets(line, capacity, file) != NULL;
    fclose(file);
    return found;
}

/* Processors that a quota of time in each period makes up, rounded up; UINT32_MAX for no limit. */
static uint32_t processors(long long quota, long long period) {
    if (quota <= 0 || period <= 0) return UINT32_MAX;
    long long count = (quota - 1) / period + 1;
    return count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
}

/* What one group allows, in either version of the files. */
static uint32_t quota_of_group(const char *folder) {
    char line[64], other[64];
    long long quota = 0, period = 0;
    if (read_line(folder, "cpu.max", line, sizeof line)) /* "max 100000" or "150000 100000" */
        return sscanf(line, "%lld %lld", &quota, &period) == 2 ? processors(quota, period) : UINT32_MAX;
    if (read_line(folder, "cpu.cfs_quota_us", line, sizeof line) &&
        read_line(folder, "cpu.cfs_period_us", other, sizeof other) && sscanf(line, "%lld", &quota) == 1 &&
        sscanf(other, "%lld", &period) == 1)
        return processors(quota, period);
    return UINT32_MAX;
}

/* What a group and those that it is in allow; `group` is its path below `root`, and is cut. */
static uint32_t quota_below(const char *root, char *group) {
    uint32_t count = UINT32_MAX;
    for (;;) {
        char folder[PATH_MAX];
        if (snprintf(folder, sizeof folder, "%s%s", root, group) < (int)sizeof folder)
            count = minimum(count, quota_of_group(folder));
        char *slash = strrchr(group, '/');
        if (slash == NULL) return count;
        *slash = '\0';
    }
}

/* Whether a comma-separated list has the word "cpu". */
static bool names_cpu(const char *list, size_t length) {
    for (size_t start = 0; start + 3 <= length; start++) {
        bool begins = start == 0 || list[start - 1] == ',';
        bool ends = start + 3 == length || list[start + 3] == ',';
        if (begins && ends && strncmp(list + start, "cpu", 3) == 0) return true;
    }
    return false;
}

/* Returns the min quota of all groups of this process. Each line says "number:controllers:path"; version 2 has none. */
static uint32_t quota(void) {
    FILE *file = fopen(NNEFC_OWN_GROUPS, "r");
    if (file == NULL) return UINT32_MAX;
    uint32_t count = UINT32_MAX;
    char line[PATH_MAX];
    while (fgets(line, sizeof line, file) != NULL) {
        char *controllers = strchr(line, ':');
        char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL) continue;
        size_t length = (size_t)(path - controllers) - 1;
        path[1 + strcspn(path + 1, "\n")] = '\0';
        if (length == 0)
            count = minimum(count, quota_below(NNEFC_GROUPS, path + 1));
        else if (names_cpu(controllers + 1, length))
            count = minimum(count, quota_below(NNEFC_GROUPS "/cpu", path + 1));
    }
    fclose(file);
    return count;
}

uint32_t nnefc_processor_count(void) { return minimum(affinity(), quota()); }

/* Whether a processor is one of those that the calling thread may run on. */
static bool is_in_own_set(int32_t processor) {
    for (size_t capacity = 1024; processor >= 0 && capacity <= 1u << 20; capacity *= 4) {
        cpu_set_t *set = CPU_ALLOC(capacity);
        if (set == NULL) break;
        size_t bytes = CPU_ALLOC_SIZE(capacity);
        bool known = sched_getaffinity(0, bytes, set) == 0;
        bool found = known && CPU_ISSET_S((size_t)processor, bytes, set);
        CPU_FREE(set);
        if (known) return found;
    }
    return false;
}

/* Makes the set of a processor alone, of so many bytes, for CPU_FREE; null for a number that no system has. */
static cpu_set_t *only(int32_t processor, size_t *bytes) {
    if (processor < 0 || processor >= 1 << 20) return NULL;
    size_t capacity = processor < 1024 ? 1024 : (size_t)processor + 1;
    cpu_set_t *set = CPU_ALLOC(capacity);
    if (set == NULL) return NULL;
    *bytes = CPU_ALLOC_SIZE(capacity);
    CPU_ZERO_S(*bytes, set);
    CPU_SET_S((size_t)processor, *bytes, set);
    return set;
}

bool nnefc_run_only_on(int32_t processor) {
    size_t bytes = 0;
    cpu_set_t *set = only(processor, &bytes);
    if (set == NULL) return false;
    bool done = sched_setaffinity(0, bytes, set) == 0;
    CPU_FREE(set);
    return done;
}

static void *try_to_run(void *argument) {
    int32_t *processor = argument;
    if (!nnefc_run_only_on(*processor)) *processor = -1;
    return NULL;
}

/* Tried, for no set says it: the calling thread's own is smaller where that is bound. */
bool nnefc_may_run_on(int32_t processor) {
    pthread_t thread;
    if (processor < 0) return false;
    if (!nnefc_start_thread(&thread, try_to_run, &processor)) return true; /* that there are no threads, the pool will say */
    pthread_join(thread, NULL);
    return processor >= 0;
}

static bool may_run_on_another_than(const int32_t *processors, uint32_t count) {
    uint32_t own = affinity();
    for (uint32_t i = 0; i < count; i++) own -= is_in_own_set(processors[i]) ? 1 : 0;
    return own > 0;
}

bool nnefc_has_processors(const int32_t *processors, uint32_t threads) {
    if (processors == NULL) return threads <= nnefc_processor_count();
    for (uint32_t i = 1; i < threads; i++)
        for (uint32_t j = 1; j < i; j++)
            if (processors[i] == processors[j]) return false;
    return threads <= quota() && may_run_on_another_than(processors + 1, threads - 1);
}

#elif defined(_WIN32)
#include <windows.h>

uint32_t nnefc_processor_count(void) {
    DWORD_PTR own = 0, all = 0;
    if (!GetProcessAffinityMask(GetCurrentProcess(), &own, &all)) return 1;
    uint32_t count = 0;
    for (; own != 0; own &= own - 1) count++;
    return count > 0 ? count : 1;
}

#elif defined(NNEFC_WORKERS)

/* workers.c knows how many there are */

#elif defined(__wasi__)

uint32_t nnefc_processor_count(void) { return 1; }

#else
#include <unistd.h>

uint32_t nnefc_processor_count(void) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}

#endif

#if !defined(__linux__)
bool nnefc_may_run_on(int32_t processor) {
    (void)processor;
    return false;
}

bool nnefc_run_only_on(int32_t processor) { return nnefc_may_run_on(processor); }

bool nnefc_has_processors(const int32_t *processors, uint32_t threads) {
    (void)processors; /* which no system takes but Linux */
    return threads <= nnefc_processor_count();
}
#endif

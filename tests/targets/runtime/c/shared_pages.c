/* Random writes to the states of two engines and copies between them, compared with ordinary memory, while calls of the system fail.
 *
 *     shared_pages FAILURES      of 1,000 calls, so many fail
 */
#define NNEFC_SEQUENCES
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned seed = 1;
static unsigned failures; /* of 1,000 calls */

static unsigned any(unsigned end) { return (unsigned)rand_r(&seed) % end; }

static void *uncertain_mmap(void *address, size_t bytes, int protection, int flags, int descriptor, off_t offset) {
    if (!(flags & MAP_FIXED) && any(1000) < failures) return MAP_FAILED;
    return mmap(address, bytes, protection, flags, descriptor, offset);
}

/* A call that fails may have unmapped what is there. */
static void *uncertain_mremap(void *old, size_t bytes, size_t new_bytes, int flags, void *address) {
    if (any(1000) >= failures) return mremap(old, bytes, new_bytes, flags, address);
    if (any(2)) munmap(address, bytes);
    return MAP_FAILED;
}

static int uncertain_ftruncate(int descriptor, off_t bytes) { return any(1000) < failures ? -1 : ftruncate(descriptor, bytes); }

#define mmap uncertain_mmap
#define mremap uncertain_mremap
#define ftruncate uncertain_ftruncate
#include "states/shared_pages.c"
#undef mmap
#undef mremap
#undef ftruncate

#define HOLD(condition)                                                              \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

enum { PAGE = 4096, PAGES = 2048, BYTES = PAGE * PAGES, PARTS = 4, PART = BYTES / PARTS / 2, STEPS = 1200 };

typedef struct engine {
    nnefc_state_pages states;
    nnefc_shared_pages *shared;
    uint8_t *wanted;
} engine;

static void make(engine *made) {
    made->shared = NULL;
    made->states = (nnefc_state_pages){nnefc_allocate_pages(BYTES), BYTES, &made->shared};
    made->wanted = calloc(1, BYTES);
    HOLD(made->states.start != NULL && made->wanted != NULL);
}

static void end(engine *ended) {
    nnefc_free_pages(ended->states.start, BYTES);
    nnefc_forget_pages(&ended->shared);
    free(ended->wanted);
}

static void write_some(engine *written) {
    size_t at = any(BYTES - 70000), bytes = any(65536);
    int value = (int)any(256);
    memset(written->states.start + at, value, bytes);
    memset(written->wanted + at, value, bytes);
}

/* Copies a range of each part of the states to its other half, or back; some at another offset in a page. */
static void copy_some(engine *to, engine *from) {
    nnefc_state_range ranges[PARTS];
    uint64_t count = 0;
    for (int part = 0; part < PARTS; part++) {
        uint64_t offset = any(5000), bytes = any(120000), first = 2 * part * (uint64_t)PART + offset;
        uint64_t other = first + PART + PAGE * any(60) + (any(4) == 0 ? 64 : 0);
        if (other + bytes > 2 * (part + 1) * (uint64_t)PART) continue;
        ranges[count++] = any(2) ? (nnefc_state_range){other, first, bytes} : (nnefc_state_range){first, other, bytes};
    }
    HOLD(nnefc_copy_pages(&to->states, &from->states, ranges, count));
    for (uint64_t i = 0; i < count; i++) memcpy(to->wanted + ranges[i].to, from->wanted + ranges[i].from, ranges[i].bytes);
}

static void copy_all(engine *to, engine *from) {
    end(to);
    make(to);
    uint64_t count;
    nnefc_state_range *ranges = nnefc_touched_ranges(&from->states, &count);
    HOLD(ranges != NULL && nnefc_copy_pages(&to->states, &from->states, ranges, count));
    nnefc_free_aligned(ranges);
    memcpy(to->wanted, from->wanted, BYTES);
}

/* The table of an engine agrees with itself. */
static void check(engine *checked) {
    HOLD(memcmp(checked->states.start, checked->wanted, BYTES) == 0);
    const nnefc_shared_pages *shared = checked->shared;
    if (shared == NULL) return;
    uint64_t users[MAX_FILES] = {0};
    for (uint64_t i = 0; i < shared->count; i++)
        if (shared->homes[i] != 0) users[file_of(shared->homes[i])]++;
    for (uint64_t i = 0; i < MAX_FILES; i++) HOLD(users[i] == shared->users[i] && (users[i] > 0) == (shared->files[i] != NULL));
}

int main(int count, char **arguments) {
    failures = count > 1 ? (unsigned)atoi(arguments[1]) : 0;
    int first = dup(0);
    close(first);
    engine engines[2];
    make(&engines[0]);
    make(&engines[1]);
    uint64_t mapped = 0;
    for (int step = 0; step < STEPS; step++) {
        engine *one = &engines[any(2)], *other = &engines[any(2)];
        if (any(2))
            write_some(one);
        else
            copy_some(one, other);
        if (step % 400 == 399) copy_all(&engines[1], &engines[0]);
        if (step % 40 != 0) continue;
        check(&engines[0]);
        check(&engines[1]);
        nnefc_state_bytes found;
        nnefc_count_pages(&engines[0].states, &found);
        HOLD(found.own + found.mapped <= BYTES);
        mapped += found.mapped;
    }
    HOLD(mapped > 0);
    end(&engines[0]);
    end(&engines[1]);
    HOLD(dup(0) == first); /* all files are closed */
    return 0;
}

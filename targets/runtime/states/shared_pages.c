#if !defined(_WIN32) && !defined(_GNU_SOURCE) /* mremap, memfd_create */
#define _GNU_SOURCE
#endif
#include "engine.h"

#ifdef NNEFC_SEQUENCES
#include "states/shared_pages.h"

#include <string.h>

#include "machine/system.h"

/* Copies all ranges, and shares nothing. */
static void copy_ranges(const nnefc_state_pages *to, const nnefc_state_pages *from, const nnefc_state_range *ranges, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        memcpy(to->start + ranges[i].to, from->start + ranges[i].from, (size_t)ranges[i].bytes);
}

#if defined(__linux__) && defined(__LP64__) && !defined(__ANDROID__)
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    MIN_PAGES = 4,    /* of a range that is shared: to map fewer takes longer than to copy them */
    MAX_FILES = 64,   /* of an engine */
    MAX_RUNS = 16384, /* ranges of pages that an engine maps: Linux has room for 65,530 mappings of a process */
    MIN_SWEPT_BYTES = 16 << 20
};

/* Pages that several sequences have, also of several engines. */
typedef struct shared_file {
    atomic_uint engines;
    int descriptor;
    uint8_t *view; /* all of it */
    size_t bytes;
} shared_file;

struct nnefc_shared_pages {
    size_t page;        /* its bytes */
    uint64_t count;     /* pages of the states */
    uint64_t runs;      /* ranges that map files */
    uint64_t added;     /* bytes of files that came after the last sweep */
    uint64_t kept;      /* bytes of files that this sweep left */
    shared_file *files[MAX_FILES];
    uint64_t users[MAX_FILES]; /* pages that map a file */
    uint64_t *homes;    /* of each page: the file's index + 1 in the upper half and the page of the file in the lower; 0 for none */
};

/* What became of an attempt to map pages. */
typedef enum outcome { MAPPED, COPIED, UNCHANGED, LOST } outcome;

static uint64_t file_of(uint64_t home) { return (home >> 32) - 1; }

static void release_file(shared_file *file) {
    if (atomic_fetch_sub(&file->engines, 1) > 1) return;
    munmap(file->view, file->bytes);
    close(file->descriptor);
    nnefc_free_aligned(file);
}

static void release_unused(nnefc_shared_pages *shared, uint64_t index) {
    if (shared->users[index] > 0 || shared->files[index] == NULL) return;
    release_file(shared->files[index]);
    shared->files[index] = NULL;
}

/* Notes that pages map a file from the page that the first home names, or none. */
static void set_homes(nnefc_shared_pages *shared, uint64_t first, uint64_t count, uint64_t home) {
    for (uint64_t i = 0; i < count; i++) {
        uint64_t before = shared->homes[first + i];
        shared->homes[first + i] = home == 0 ? 0 : home + i;
        if (home != 0) shared->users[file_of(home)]++;
        if (before == 0) continue;
        shared->users[file_of(before)]--;
        release_unused(shared, file_of(before));
    }
}

static uint8_t *in_file(const nnefc_shared_pages *shared, uint64_t home) {
    return shared->files[file_of(home)]->view + (home & UINT32_MAX) * shared->page;
}

/* Whether a page maps a file and has not been written since. */
static bool is_shared(const nnefc_state_pages *states, uint64_t page) {
    const nnefc_shared_pages *shared = *states->shared;
    uint64_t home = shared->homes[page];
    return home != 0 && memcmp(states->start + page * shared->page, in_file(shared, home), shared->page) == 0;
}

/* Moves a mapping over pages of the states, or copies its content there where the system refuses that. */
static outcome move_over(uint8_t *there, void *made, size_t bytes) {
    if (mremap(made, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, there) == (void *)there) return MAPPED;
    void *own = mmap(there, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (own != MAP_FAILED) memcpy(there, made, bytes);
    munmap(made, bytes);
    return own != MAP_FAILED ? COPIED : LOST;
}

/* Maps pages of a file, from a page on, over pages of the states. */
static outcome map_file(const nnefc_state_pages *states, uint64_t first, uint64_t count, uint64_t home) {
    nnefc_shared_pages *shared = *states->shared;
    if (shared->runs >= MAX_RUNS) return UNCHANGED;
    size_t bytes = count * shared->page;
    off_t offset = (off_t)((home & UINT32_MAX) * shared->page);
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, shared->files[file_of(home)]->descriptor, offset);
    if (made == MAP_FAILED) return UNCHANGED;
    outcome found = move_over(states->start + first * shared->page, made, bytes);
    shared->runs += found == MAPPED;
    set_homes(shared, first, count, found == MAPPED ? home : 0);
    return found;
}

/* Gives pages that have been written since they were shared memory that no file holds. */
static outcome take_off(const nnefc_state_pages *states, uint64_t first, uint64_t count) {
    nnefc_shared_pages *shared = *states->shared;
    size_t bytes = count * shared->page;
    uint8_t *there = states->start + first * shared->page;
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return UNCHANGED;
    memcpy(made, there, bytes);
    outcome found = move_over(there, made, bytes);
    set_homes(shared, first, count, 0);
    return found;
}

/* Releases files that written pages alone still map, when as many bytes have been added as were kept before: files take at most
 * about twice the memory of the pages that are shared. */
static bool sweep(const nnefc_state_pages *states) {
    nnefc_shared_pages *shared = *states->shared;
    bool is_due = shared->added > MIN_SWEPT_BYTES && shared->added > shared->kept;
    if (!is_due && shared->runs < MAX_RUNS) return true;
    uint64_t runs = 0, kept = 0, before = 0;
    for (uint64_t page = 0; page < shared->count; page++) {
        uint64_t written = 0;
        while (page + written < shared->count && shared->homes[page + written] != 0 && !is_shared(states, page + written)) written++;
        if (written > 0) {
            if (take_off(states, page, written) == LOST) return false;
            page += written - 1;
        }
        uint64_t home = shared->homes[page];
        runs += home != 0 && home != before + 1;
        before = home;
    }
    for (uint64_t i = 0; i < MAX_FILES; i++) kept += shared->files[i] != NULL ? shared->files[i]->bytes : 0;
    shared->runs = runs, shared->kept = kept, shared->added = 0;
    return true;
}

/* Makes the table of an engine that shares pages first; false if it cannot share any. */
static bool begin_sharing(const nnefc_state_pages *states) {
    if (*states->shared != NULL) return true;
    long page = sysconf(_SC_PAGESIZE);
    if (page <= 0 || (uintptr_t)states->start % (uintptr_t)page != 0 || states->bytes < (uint64_t)page) return false;
    nnefc_shared_pages *made = nnefc_allocate_aligned(sizeof *made);
    if (made == NULL) return false;
    memset(made, 0, sizeof *made);
    made->page = (size_t)page;
    made->count = states->bytes / made->page;
    made->homes = nnefc_allocate_pages(made->count * sizeof *made->homes);
    if (made->homes == NULL) nnefc_free_aligned(made);
    else *states->shared = made;
    return *states->shared != NULL;
}

static shared_file *make_file(size_t bytes) {
    shared_file *file = nnefc_allocate_aligned(sizeof *file);
    if (file == NULL) return NULL;
    atomic_init(&file->engines, 1);
    file->bytes = bytes;
    file->view = MAP_FAILED;
    file->descriptor = (int)syscall(SYS_memfd_create, "nnefc states", 1U /* close on exec */);
    if (file->descriptor >= 0 && ftruncate(file->descriptor, (off_t)bytes) == 0)
        file->view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->descriptor, 0);
    if (file->view != MAP_FAILED) return file;
    if (file->descriptor >= 0) close(file->descriptor);
    nnefc_free_aligned(file);
    return NULL;
}

/* Returns the index of a file in an engine's table, where it may be new; MAX_FILES if the table is full. Null asks for a free index. */
static uint64_t index_of(const nnefc_shared_pages *shared, const shared_file *file) {
    uint64_t free = MAX_FILES;
    for (uint64_t i = MAX_FILES; i-- > 0;) {
        if (file != NULL && shared->files[i] == file) return i;
        if (shared->files[i] == NULL) free = i;
    }
    return free;
}

/* Returns how many pages a range has that can be shared, and the first of them; 0 if these are few, or at other offsets in the
 * destination. */
static uint64_t whole_pages(const nnefc_state_range *range, size_t page, uint64_t *first) {
    if (range->to % page != range->from % page) return 0;
    *first = (range->from + page - 1) / page;
    uint64_t end = (range->from + range->bytes) / page;
    return end >= *first + MIN_PAGES ? end - *first : 0;
}

/* Returns how many of some pages, from the first on, are shared, or are not. */
static uint64_t alike(const nnefc_state_pages *states, uint64_t first, uint64_t count, bool shared) {
    uint64_t found = 0;
    while (found < count && is_shared(states, first + found) == shared) found++;
    return found;
}

/* Moves the pages of ranges that are in no file to a new one; where the system refuses that, they stay. */
static bool publish(const nnefc_state_pages *states, const nnefc_state_range *ranges, uint64_t count) {
    nnefc_shared_pages *shared = *states->shared;
    uint64_t fresh = 0, first = 0, used = 0;
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t left = whole_pages(&ranges[i], shared->page, &first); left > 0; left--, first++) fresh += !is_shared(states, first);
    uint64_t index = index_of(shared, NULL);
    if (fresh == 0 || fresh > UINT32_MAX || index == MAX_FILES) return true;
    shared_file *file = make_file(fresh * shared->page);
    if (file == NULL) return true;
    shared->files[index] = file;
    shared->added += file->bytes;
    outcome found = MAPPED;
    for (uint64_t i = 0; i < count && found != LOST; i++) {
        uint64_t left = whole_pages(&ranges[i], shared->page, &first);
        while (left > 0 && found != LOST) {
            uint64_t run = alike(states, first, left, true);
            first += run, left -= run;
            run = alike(states, first, left, false);
            if (run == 0) continue;
            memcpy(file->view + used * shared->page, states->start + first * shared->page, run * shared->page);
            found = map_file(states, first, run, (index + 1) << 32 | used);
            first += run, left -= run, used += run;
        }
    }
    release_unused(shared, index);
    return found != LOST;
}

/* Lets pages map the same pages of a file as those of another engine, or of another sequence, do. */
static outcome give_pages(const nnefc_state_pages *to, uint64_t first, uint64_t count, shared_file *file, uint64_t page) {
    nnefc_shared_pages *shared = *to->shared;
    uint64_t index = index_of(shared, file);
    if (index == MAX_FILES) return UNCHANGED;
    uint64_t home = (index + 1) << 32 | page, there = 0;
    while (there < count && shared->homes[first + there] == home + there && is_shared(to, first + there)) there++;
    if (there == count) return MAPPED; /* already */
    if (shared->files[index] == NULL) {
        atomic_fetch_add(&file->engines, 1);
        shared->files[index] = file;
        shared->added += file->bytes;
    }
    outcome found = map_file(to, first, count, home);
    release_unused(shared, index);
    return found;
}

/* Copies the pages of a range from the first one on: those in files are shared. */
static bool copy_whole_pages(
    const nnefc_state_pages *to, const nnefc_state_pages *from, const nnefc_state_range *range, uint64_t first, uint64_t count) {
    const nnefc_shared_pages *shared = *from->shared;
    size_t page = shared->page;
    uint64_t there = (range->to + (first * page - range->from)) / page;
    while (count > 0) {
        uint64_t home = shared->homes[first], run = 1;
        outcome found = UNCHANGED;
        if (is_shared(from, first)) {
            while (run < count && shared->homes[first + run] == home + run && is_shared(from, first + run)) run++;
            found = give_pages(to, there, run, shared->files[file_of(home)], home & UINT32_MAX);
        }
        if (found == LOST) return false;
        if (found == UNCHANGED) memcpy(to->start + there * page, from->start + first * page, run * page);
        first += run, there += run, count -= run;
    }
    return true;
}

bool nnefc_copy_pages(const nnefc_state_pages *to, const nnefc_state_pages *from, const nnefc_state_range *ranges, uint64_t count) {
    if (!begin_sharing(from) || !begin_sharing(to)) {
        copy_ranges(to, from, ranges, count);
        return true;
    }
    if (!sweep(from) || !sweep(to) || !publish(from, ranges, count)) return false;
    size_t page = (*from->shared)->page;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t first = 0, whole = whole_pages(&ranges[i], page, &first);
        if (whole == 0) {
            copy_ranges(to, from, &ranges[i], 1);
            continue;
        }
        uint64_t head = first * page - ranges[i].from, done = head + whole * page;
        const nnefc_state_range ends[] = {{ranges[i].to, ranges[i].from, head},
                                          {ranges[i].to + done, ranges[i].from + done, ranges[i].bytes - done}};
        copy_ranges(to, from, ends, 2);
        if (!copy_whole_pages(to, from, &ranges[i], first, whole)) return false;
    }
    return true;
}

/* Whether each page of memory has been touched; the caller frees the bytes by nnefc_free_pages. */
static uint8_t *touched_pages(const nnefc_state_pages *states, size_t page, size_t count) {
    uint8_t *found = nnefc_allocate_pages(count);
    if (found == NULL || mincore(states->start, count * page, found) == 0) return found;
    nnefc_free_pages(found, count);
    return NULL;
}

static bool is_zero(const uint8_t *memory, uint64_t bytes) {
    return memory[0] == 0 && memcmp(memory, memory + 1, (size_t)bytes - 1) == 0;
}

nnefc_state_range *nnefc_touched_ranges(const nnefc_state_pages *states, uint64_t *count) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (size_t)((states->bytes + page - 1) / page);
    uint8_t *touched = touched_pages(states, page, pages);
    if (touched == NULL) return NULL;
    uint64_t runs = 0;
    for (size_t i = 0; i < pages; i++) {
        uint64_t bytes = states->bytes - i * page < page ? states->bytes - i * page : page;
        touched[i] = (touched[i] & 1) != 0 && !is_zero(states->start + i * page, bytes);
        runs += touched[i] && (i == 0 || !touched[i - 1]);
    }
    nnefc_state_range *ranges = nnefc_allocate_aligned((runs + 1) * sizeof *ranges);
    *count = 0;
    for (size_t i = 0; ranges != NULL && i < pages; i++) {
        uint64_t begin = i * page, bytes = states->bytes - begin < page ? states->bytes - begin : page;
        if (!touched[i]) continue;
        if (i == 0 || !touched[i - 1]) ranges[(*count)++] = (nnefc_state_range){begin, begin, 0};
        ranges[*count - 1].bytes += bytes;
    }
    nnefc_free_pages(touched, pages);
    return ranges;
}

void nnefc_count_pages(const nnefc_state_pages *states, nnefc_state_bytes *found) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (size_t)((states->bytes + page - 1) / page);
    const nnefc_shared_pages *shared = *states->shared;
    *found = (nnefc_state_bytes){0, 0, 0};
    for (uint64_t i = 0; shared != NULL && i < MAX_FILES; i++) found->shared += shared->files[i] != NULL ? shared->files[i]->bytes : 0;
    uint8_t *touched = touched_pages(states, page, pages);
    for (size_t i = 0; i < pages; i++) {
        if (touched != NULL && (touched[i] & 1) == 0) continue;
        bool is_mapped = shared != NULL && i < shared->count && is_shared(states, i);
        *(is_mapped ? &found->mapped : &found->own) += page;
    }
    if (touched != NULL) nnefc_free_pages(touched, pages);
}

void nnefc_forget_pages(nnefc_shared_pages **shared) {
    nnefc_shared_pages *own = *shared;
    if (own == NULL) return;
    for (uint64_t i = 0; i < MAX_FILES; i++)
        if (own->files[i] != NULL) release_file(own->files[i]);
    nnefc_free_pages(own->homes, own->count * sizeof *own->homes);
    nnefc_free_aligned(own);
    *shared = NULL;
}

#else

bool nnefc_copy_pages(const nnefc_state_pages *to, const nnefc_state_pages *from, const nnefc_state_range *ranges, uint64_t count) {
    copy_ranges(to, from, ranges, count);
    return true;
}

nnefc_state_range *nnefc_touched_ranges(const nnefc_state_pages *states, uint64_t *count) {
    (void)states;
    *count = 0;
    return NULL;
}

void nnefc_count_pages(const nnefc_state_pages *states, nnefc_state_bytes *found) {
    *found = (nnefc_state_bytes){states->bytes, 0, 0};
}

void nnefc_forget_pages(nnefc_shared_pages **shared) { (void)shared; }

#endif
#endif

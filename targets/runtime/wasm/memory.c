/* The memory of modules that are linked without a C library: malloc and its kin, for what is in a module and for the program
 * around it.
 *
 * Memory is blocks, one after the other. Each begins with its size and the block before it, so that free neighbours become one;
 * free ones are in lists, by the power of two of their size. */
#include "machine/system.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { UNIT = 16, PAGE_SHIFT = 16, LISTS = 32 };

#define PAGE_BYTES ((size_t)1 << PAGE_SHIFT)
#define MAX_PAGES ((size_t)UINT16_MAX) /* with one more the end of memory would be no address */
#define USED ((size_t)1)                /* in `bytes`, which are a multiple of UNIT besides */

typedef struct block {
    struct block *before;       /* in memory; null for the first one */
    size_t bytes;               /* of all of it */
    struct block *next, **link; /* of a free one: the next of its list, and what points to it */
} block;

enum { HEADER = offsetof(block, next) };

_Static_assert(sizeof(block) == UNIT, "the smallest block has room for what a free one keeps");
_Static_assert(HEADER == UNIT / 2, "the end of memory needs no more than a header");

/* From the linker: where nothing else is from here on. */
extern unsigned char __heap_base;

static block *lists[LISTS];
static block *end; /* a header alone, in use, where the newest memory ends */
static pthread_mutex_t access;

static size_t rounded_up(size_t number, size_t unit) { return (number + unit - 1) & ~(unit - 1); }

static size_t size_of(const block *at) { return at->bytes & ~USED; }

static block *after(block *at) { return (block *)((char *)at + size_of(at)); }

/* The list of free blocks of a size: those of all later lists are larger. */
static int list_of(size_t bytes) { return LISTS - 1 - __builtin_clzl(bytes); }

static void put_into_list(block *at) {
    at->link = &lists[list_of(at->bytes)];
    at->next = *at->link;
    if (at->next != NULL) at->next->link = &at->next;
    *at->link = at;
}

static void take_from_list(block *at) {
    *at->link = at->next;
    if (at->next != NULL) at->next->link = at->link;
}

/* Makes a block in use a free one, together with free neighbours. */
static void release(block *at) {
    block *before = at->before, *next = after(at);
    at->bytes = size_of(at);
    if (!(next->bytes & USED)) {
        take_from_list(next);
        at->bytes += next->bytes;
    }
    if (before != NULL && !(before->bytes & USED)) {
        take_from_list(before);
        before->bytes += at->bytes;
        at = before;
    }
    after(at)->before = at;
    put_into_list(at);
}

/* Cuts a block in use into two, the first one of so many bytes; the second one. */
static block *split(block *at, size_t bytes) {
    size_t remainder = size_of(at) - bytes;
    at->bytes = bytes | USED;
    block *second = after(at);
    second->before = at;
    second->bytes = remainder | USED;
    after(second)->before = second;
    return second;
}

/* Adds the memory between two addresses, multiples of UNIT. */
static void add(size_t from, size_t to) {
    bool continues = end != NULL && (size_t)end + HEADER == from;
    block *first = continues ? end : (block *)(from + UNIT - HEADER);
    if (!continues) first->before = NULL;
    end = (block *)(to - HEADER);
    end->before = first;
    end->bytes = USED;
    first->bytes = (size_t)((char *)end - (char *)first) | USED;
    release(first);
}

/* What the module has from the start and does not use. */
static void begin(void) {
    size_t pages = __builtin_wasm_memory_size(0), from = rounded_up((size_t)&__heap_base, UNIT);
    size_t to = (pages < MAX_PAGES ? pages : MAX_PAGES) << PAGE_SHIFT;
    if (to >= from + 2 * UNIT) add(from, to);
}

/* Asks for so many bytes more; false if there are not so many. */
static bool grow(size_t bytes) {
    size_t had = __builtin_wasm_memory_size(0), pages = rounded_up(bytes + UNIT, PAGE_BYTES) >> PAGE_SHIFT;
    if (had >= MAX_PAGES || pages > MAX_PAGES - had || __builtin_wasm_memory_grow(0, pages) != had) return false;
    add(had << PAGE_SHIFT, (had + pages) << PAGE_SHIFT);
    return true;
}

/* How many bytes a block has before those that are aligned, with their header. */
static size_t unaligned(const block *at, size_t alignment) {
    size_t first = (size_t)at + HEADER;
    return rounded_up(first, alignment) - first;
}

/* A free block that has so many aligned bytes, with their header; null if there is none. */
static block *fitting(size_t bytes, size_t alignment) {
    for (int list = list_of(bytes); list < LISTS; list++)
        for (block *at = lists[list]; at != NULL; at = at->next)
            if (at->bytes >= bytes + unaligned(at, alignment)) return at;
    return NULL;
}

static void *take(size_t bytes, size_t alignment) {
    if (bytes > (MAX_PAGES - 2) << PAGE_SHIFT || alignment > PAGE_BYTES) return NULL;
    bytes = rounded_up(bytes + HEADER, UNIT);
    pthread_mutex_lock(&access);
    if (end == NULL) begin();
    block *taken = fitting(bytes, alignment);
    if (taken == NULL && grow(bytes + alignment)) taken = fitting(bytes, alignment);
    if (taken != NULL) {
        take_from_list(taken);
        taken->bytes |= USED;
        size_t skipped = unaligned(taken, alignment);
        if (skipped > 0) {
            block *aligned = split(taken, skipped);
            release(taken);
            taken = aligned;
        }
        if (size_of(taken) > bytes) release(split(taken, bytes));
    }
    pthread_mutex_unlock(&access);
    return taken != NULL ? (char *)taken + HEADER : NULL;
}

void *malloc(size_t bytes) { return take(bytes, UNIT); }

void *calloc(size_t count, size_t each) {
    size_t bytes;
    if (__builtin_mul_overflow(count, each, &bytes)) return NULL;
    void *memory = take(bytes, UNIT);
    return memory != NULL ? memset(memory, 0, bytes) : NULL;
}

/* An alignment is a power of two, a page at most. */
int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    void *taken = take(bytes, alignment > UNIT ? alignment : UNIT);
    if (taken == NULL) return ENOMEM;
    *memory = taken;
    return 0;
}

void free(void *memory) {
    if (memory == NULL) return;
    pthread_mutex_lock(&access);
    release((block *)((char *)memory - HEADER));
    pthread_mutex_unlock(&access);
}

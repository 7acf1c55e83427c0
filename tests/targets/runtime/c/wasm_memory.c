/* Uses memory of WebAssembly at random, in one thread or several. Every function answers the line of what is wrong, 0 for none. */
#include "machine/system.h"

#include <stdlib.h>
#include <string.h>

#define HOLD(condition) \
    if (!(condition)) return __LINE__

enum { SLOTS = 64, THREADS = 4 };

typedef struct slot {
    unsigned char *memory;
    size_t bytes;
} slot;

static uint32_t next(uint32_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

static bool is_filled(const unsigned char *memory, size_t bytes, unsigned char value) {
    for (size_t i = 0; i < bytes; i++)
        if (memory[i] != value) return false;
    return true;
}

static int use(uint32_t seed, int steps) {
    slot slots[SLOTS] = {0};
    uint32_t state = seed;
    for (int step = 0; step < steps + SLOTS; step++) {
        size_t number = step < steps ? next(&state) % SLOTS : (size_t)(step - steps); /* all are freed in the end */
        slot *at = &slots[number];
        unsigned char value = (unsigned char)(seed + number);
        if (at->memory != NULL || step >= steps) {
            HOLD(is_filled(at->memory, at->bytes, value));
            free(at->memory);
            *at = (slot){0};
            continue;
        }
        size_t bytes = next(&state) % ((size_t)1 << next(&state) % 18), alignment = (size_t)16 << next(&state) % 13;
        void *memory = NULL;
        switch (next(&state) % 3) {
            case 0:
                memory = malloc(bytes);
                alignment = 16;
                break;
            case 1:
                memory = calloc(bytes / 4 + 1, 4);
                bytes = (bytes / 4 + 1) * 4;
                HOLD(is_filled(memory, bytes, 0));
                alignment = 16;
                break;
            default:
                HOLD(posix_memalign(&memory, alignment, bytes) == 0);
        }
        HOLD(memory != NULL && (size_t)memory % alignment == 0);
        memset(memory, value, bytes);
        *at = (slot){memory, bytes};
    }
    return 0;
}

int use_memory(uint32_t seed, int steps);
int use_memory(uint32_t seed, int steps) { return use(seed, steps); }

/* After everything was freed: memory is in one piece again, from one address to another. */
int is_whole(size_t from, size_t to);
int is_whole(size_t from, size_t to) {
    size_t pages = __builtin_wasm_memory_size(0);
    void *all = malloc(to - from - 64);
    HOLD(all != NULL);
    HOLD(__builtin_wasm_memory_size(0) == pages);
    free(all);
    return 0;
}

extern unsigned char __heap_base;

size_t heap(void);
size_t heap(void) { return (size_t)&__heap_base; }

/* What there is no room for is refused, and leaves everything as it was. */
int exhaust(void);
int exhaust(void) {
    void *none = &none, *held[4];
    HOLD(malloc(SIZE_MAX) == NULL && malloc(SIZE_MAX - 40) == NULL && malloc((size_t)65535 << 16) == NULL);
    HOLD(calloc(65536, 65537) == NULL);
    HOLD(posix_memalign(&none, 64, SIZE_MAX - 64) != 0 && posix_memalign(&none, (size_t)1 << 20, 1) != 0 && none == &none);
    for (int i = 0; i < 4; i++) held[i] = malloc((size_t)1 << 30);
    HOLD(held[0] != NULL && held[1] != NULL && held[2] != NULL && held[3] == NULL);
    for (int i = 0; i < 4; i++) free(held[i]);
    void *large = malloc((size_t)3 << 30);
    HOLD(large != NULL);
    free(large);
    return use(1, 2000);
}

#if defined(NNEFC_WORKERS)
static int failed[THREADS];

static void *use_in_thread(void *seed) {
    failed[(size_t)seed] = use((uint32_t)(size_t)seed + 1, 20000);
    return NULL;
}

int use_in_threads(void);
int use_in_threads(void) {
    pthread_t threads[THREADS];
    for (size_t i = 1; i < THREADS; i++) HOLD(nnefc_start_thread(&threads[i], use_in_thread, (void *)i));
    use_in_thread(0);
    int found = failed[0];
    for (size_t i = 1; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (found == 0) found = failed[i];
    }
    return found;
}
#endif

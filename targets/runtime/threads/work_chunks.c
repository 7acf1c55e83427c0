#include "threads/work_chunks.h"

#include <stdbool.h>

enum {
    CANDIDATES = 16,      /* numbers of iterations in a piece that are compared */
    PIECE_CYCLES = 8192,  /* of a piece, at least, where there are several for each thread */
    LAUNCH_CYCLES = 2048  /* from the beginning of a launch until all threads work at it and are known to be through */
};

static int64_t pieces_of_cycles(int64_t cycles) {
    int64_t pieces = cycles / PIECE_CYCLES;
    return pieces < 1 ? 1 : pieces < NNEFC_MAX_PIECES ? pieces : NNEFC_MAX_PIECES;
}

/* Whether the cycles of all iterations are unknown, or overflow. */
static bool are_countless(int64_t iterations, int64_t cycles) { return cycles <= 0 || iterations > INT64_MAX / cycles; }

int64_t nnefc_pieces_each(int64_t iterations, int64_t cycles, uint32_t threads) {
    if (are_countless(iterations, cycles)) return NNEFC_MAX_PIECES;
    int64_t shared = iterations < threads ? iterations : threads, all = iterations * cycles, part = all / shared;
    return all - part <= LAUNCH_CYCLES ? 0 : pieces_of_cycles(part);
}

int32_t nnefc_pieces_of(int64_t iterations, uint32_t threads, int64_t each) {
    int64_t maximum = threads * each;
    if (iterations <= maximum / 2 || (each == 1 && iterations <= maximum)) return (int32_t)iterations;
    if (each == 1 || iterations > INT64_MAX / 4096 / maximum) return (int32_t)maximum;
    int64_t shortest = (iterations + maximum - 1) / maximum, longest = (iterations + threads - 1) / threads, best = maximum, minimum = INT64_MAX;
    for (int64_t i = 0; i < CANDIDATES; i++) {
        int64_t length = shortest + i * ((shortest + 7) / 8);
        if (length > longest) break;
        int64_t pieces = (iterations + length - 1) / length, of_thread = (pieces + threads - 1) / threads;
        int64_t cost = 256 * threads * of_thread * length + of_thread * iterations;
        if (cost > minimum) continue;
        best = pieces;
        minimum = cost;
    }
    return (int32_t)best;
}

int32_t nnefc_pieces_alone(int64_t iterations, int64_t cycles) {
#ifdef __wasm__
    int64_t maximum = are_countless(iterations, cycles) ? NNEFC_MAX_PIECES : pieces_of_cycles(iterations * cycles);
    return (int32_t)(iterations < maximum ? iterations : maximum);
#else
    (void)iterations, (void)cycles;
    return 1;
#endif
}

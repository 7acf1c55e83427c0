/* Chooses the number of chunks of a launch, which threads take one after another. */
#ifndef NNEFC_PIECES_H
#define NNEFC_PIECES_H

#include <stdint.h>

enum { NNEFC_MAX_PIECES = 16 }; /* of a launch for each thread */

/* Returns the chunks per thread for a loop of so many cycles per iteration; 0 if other threads are not worth waking. */
int64_t nnefc_pieces_each(int64_t iterations, int64_t cycles, uint32_t threads);

/* How many pieces a loop of so many iterations has: `each` for each thread at most, about half of them if there are more
 * iterations, and such that threads of one speed are through at the same time. All pieces have the same number of iterations, but the
 * last. What a piece costs besides its iterations is taken for 1/256 of a thread's part. */
int32_t nnefc_pieces_of(int64_t iterations, uint32_t threads, int64_t each);

/* How many pieces a loop has that one thread computes: one, save in engines of WebAssembly. These compile a function quickly, and
 * better while it runs, but the better code begins with a call: most pieces of the first run have it. */
int32_t nnefc_pieces_alone(int64_t iterations, int64_t cycles);

#endif

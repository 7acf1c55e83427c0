/* Threads of a session that the system keeps from running while another one waits for them. A second program on their
 * processor is enough: it gets the processor for some milliseconds, and until then a launch does not end, for the thread is
 * within a piece of it. Who waits can tell from the processor time that a thread has taken, and then lets it run on the
 * processor that it waits on itself. When the piece is done, the thread returns to the other processors.
 *
 * With Linux alone: elsewhere no thread is known to be stopped. */
#ifndef NNEFC_STOPPED_H
#define NNEFC_STOPPED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "machine/system.h"

#if defined(__linux__)
enum { nnefc_tells_stopped = true };
#else
enum { nnefc_tells_stopped = false };
#endif

enum { NNEFC_SET_BYTES = 128 }; /* of a set of 1024 processors: on larger systems threads stay where they are */

enum { NNEFC_AT_HOME, NNEFC_BEING_BROUGHT, NNEFC_AWAY };

typedef struct nnefc_movable {
    atomic_int state;
    atomic_int number;               /* of the thread, as the system counts; 0 if it stays where it is */
    int64_t ran;                     /* the processor time that it had taken when it was looked at last; -1: not looked at since */
    _Alignas(8) unsigned char home[NNEFC_SET_BYTES]; /* of a thread that is away: the processors that it may run on otherwise */
} nnefc_movable;

/* Says that the calling thread may be brought to another one's processor. */
void nnefc_may_be_brought(nnefc_movable *own);

/* Returns the processor time of the calling thread, in nanoseconds; -1 if unknown. */
int64_t nnefc_own_processor_time(void);

/* Notes how much a thread has taken, for nnefc_bring_if_stopped. */
void nnefc_look_at(nnefc_movable *movable, pthread_t thread);

/* Brings a thread to the calling one's processor if it has been stopped since nnefc_look_at, while the calling thread has
 * run for so many nanoseconds; whether that was done. The thread has not ended. */
bool nnefc_bring_if_stopped(nnefc_movable *movable, pthread_t thread, int64_t own);

/* To be called by a thread that may be brought, when no thread waits for it: it returns to another processor if it was. */
void nnefc_go_home(nnefc_movable *own);

#endif

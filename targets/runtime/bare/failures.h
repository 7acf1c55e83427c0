/* The only variable of a network on a machine without an operating system. A run sets it to 0 and puts back what was there
 * when it ends, so that an interrupt's run leaves that of the program that it interrupted alone. Runs on several cores, or in
 * threads that take turns, do not end in that order: they need a lock, or may report each other's failures. */
#ifndef NNEFC_BARE_FAILURES_H
#define NNEFC_BARE_FAILURES_H

#include <stdint.h>

extern volatile int32_t nnefc_failed;

#endif

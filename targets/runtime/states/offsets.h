/* Where states are in the memory of an engine. */
#ifndef NNEFC_STATE_OFFSETS_H
#define NNEFC_STATE_OFFSETS_H

#include <stdint.h>

/* Returns where a state begins: they lie one after the other, each aligned. */
uint64_t nnefc_state_offset(uint32_t state);

#endif

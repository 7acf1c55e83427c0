/* The networks that a library has for several kinds of processors. */
#ifndef NNEFC_LEVELS_H
#define NNEFC_LEVELS_H

#include "model.h"

/* The generated file defines these: from the oldest processors on, each with the name of its target. */
extern const nnefc_model *const nnefc_levels[];
extern const uint32_t nnefc_level_count;

#endif

/* The outputs that the runs of a session compute. */
#ifndef NNEFC_SELECTION_H
#define NNEFC_SELECTION_H

#include <stdint.h>

typedef struct nnefc_selection {
    uint8_t *outputs; /* of each output whether it is selected; null before there has been a selection */
    uint8_t *wanted;  /* the same while some are not; null while all are */
    void **own;       /* where those go that are not selected; null where memory is found when sizes are known */
    void **pointers;  /* of one run */
    uint8_t *memory;  /* what `own` points into */
    uint64_t memory_bytes;
} nnefc_selection;

#endif

/* Texts, the elements of tensors of strings, as the network's code sees them: handles, which are moved like numbers.
 *
 * Elements of inputs and outputs are nnefc_string; boundary.h changes the ones into the others. */
#ifndef NNEFC_TEXT_H
#define NNEFC_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nnefc.h"

/* 0: the text without bytes, which has no other handle. An even number: the address of an nnefc_string. An odd one: 1 more than the address of an
 * nnefc_sized_text. All that they refer to stays until the next run. */
typedef int64_t nnefc_text;

/* What constants, and texts that a run makes, are. */
typedef struct nnefc_sized_text {
    uint64_t size;
    char data[];
} nnefc_sized_text;

static inline nnefc_string nnefc_text_bytes(nnefc_text text) {
    nnefc_string bytes = {NULL, 0};
    if (text & 1) {
        const nnefc_sized_text *sized = (const nnefc_sized_text *)(uintptr_t)(text - 1);
        bytes.data = sized->data, bytes.size = (size_t)sized->size;
    } else if (text != 0)
        bytes = *(const nnefc_string *)(uintptr_t)text;
    return bytes;
}

static inline nnefc_text nnefc_text_of_sized(const nnefc_sized_text *sized) {
    return sized->size > 0 ? (nnefc_text)(uintptr_t)sized + 1 : 0;
}

static inline nnefc_text nnefc_text_of_string(const nnefc_string *string) {
    return string->size > 0 ? (nnefc_text)(uintptr_t)string : 0;
}

/* Memory for the present run, aligned to 8 bytes. Null, and the run fails, if there is none; to be called on the thread
 * that runs the network only. */
void *nnefc_text_allocate(uint64_t bytes);

/* A new text of so many bytes, to be written by the caller; null as nnefc_text_allocate. */
nnefc_sized_text *nnefc_text_new(uint64_t size);

/* Whether a kernel of this run has failed: handles may then be anything, and must not be dereferenced. */
int32_t nnefc_run_failed(void);

/* Lets the run fail with this message. */
int32_t nnefc_kernel_error(const char *text);

#endif

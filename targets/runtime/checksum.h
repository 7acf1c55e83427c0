/* A checksum of the trained values, which detects damage. */
#ifndef NNEFC_CHECKSUM_H
#define NNEFC_CHECKSUM_H

#include <stdint.h>

/* Of any number of bytes; takes about as long as reading them. */
uint64_t nnefc_checksum(const uint8_t *data, uint64_t bytes);

#endif

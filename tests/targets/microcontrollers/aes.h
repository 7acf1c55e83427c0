/* AES-128 (FIPS 197) in software, for programs of tests that have no unit for it. */
#ifndef AES_H
#define AES_H

#include <stdint.h>

/* Computes the table of substitutions: call it once. */
void aes_begin(void);

/* Encrypts a block of 16 bytes in place. */
void aes_encrypt(const uint8_t *key, uint8_t *block);

#endif

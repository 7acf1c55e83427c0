#include "aes.h"

static uint8_t substitutes[256];

static uint8_t doubled(uint8_t a) { return (uint8_t)(a << 1 ^ (a >> 7) * 0x1b); }

static uint8_t product(uint8_t a, uint8_t b) {
    uint8_t sum = 0;
    for (; b; b >>= 1, a = doubled(a))
        if (b & 1) sum ^= a;
    return sum;
}

void aes_begin(void) {
    for (int value = 0; value < 256; value++) {
        uint8_t inverse = 1, bits = 0x63;
        for (int i = 0; i < 7; i++) inverse = product(product(inverse, inverse), (uint8_t)value);
        inverse = product(inverse, inverse); /* the power of 254 */
        for (int i = 0; i < 5; i++) bits ^= (uint8_t)(inverse << i | inverse >> (8 - i));
        substitutes[value] = bits;
    }
}

void aes_encrypt(const uint8_t *key, uint8_t *block) {
    uint8_t round_key[16], mixed[16], constant = 1;
    for (int i = 0; i < 16; i++) round_key[i] = key[i];
    for (int round = 1; round <= 10; round++) {
        for (int i = 0; i < 16; i++) block[i] = substitutes[block[i] ^ round_key[i]];
        for (int i = 0; i < 16; i++) mixed[i] = block[5 * i % 16]; /* rows are rotated */
        for (int i = 0; i < 16; i++) {
            const uint8_t *column = mixed + i / 4 * 4;
            uint8_t a = column[i % 4], b = column[(i + 1) % 4], c = column[(i + 2) % 4], d = column[(i + 3) % 4];
            block[i] = round == 10 ? a : (uint8_t)(doubled(a ^ b) ^ b ^ c ^ d);
        }
        for (int i = 0; i < 16; i++) {
            uint8_t last = i < 4 ? substitutes[round_key[12 + (i + 1) % 4]] : round_key[i - 4];
            round_key[i] ^= last ^ (i == 0 ? constant : 0);
        }
        constant = doubled(constant);
    }
    for (int i = 0; i < 16; i++) block[i] ^= round_key[i];
}

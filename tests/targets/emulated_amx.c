/* What the matrix unit AMX of x86 processors does, in C, after Intel's manual (volume 2, TDPBF16PS, TDPBUSD and others): for
 * tests of the code that uses it, on machines that do not have it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64, PALETTE = 0, BYTES = 16, HEIGHTS = 48 };

typedef struct tile_unit {
    uint8_t rows[TILES], bytes[TILES];
    uint8_t data[TILES][ROWS][ROW_BYTES];
} tile_unit;

/* Of a thread, while it uses it: memory of threads themselves is too small for it where libraries are opened late. */
static _Thread_local tile_unit *unit;

int32_t nnefc_emulated_tiles(void);
int32_t nnefc_emulated_tiles(void) { return 0; }

/* What the processor would answer with an exception. */
static void check(int right) {
    if (!right) __builtin_trap();
}

static void check_tile(int8_t t) { check(unit != NULL && t >= 0 && t < TILES && unit->rows[t] > 0 && unit->bytes[t] > 0); }

void nnefc_emulated_shape(const uint8_t *configuration);
void nnefc_emulated_shape(const uint8_t *configuration) {
    check(configuration[PALETTE] == 1);
    if (unit == NULL) unit = malloc(sizeof *unit);
    check(unit != NULL);
    memset(unit, 0, sizeof *unit);
    for (int t = 0; t < TILES; t++) {
        unit->bytes[t] = configuration[BYTES + 2 * t];
        unit->rows[t] = configuration[HEIGHTS + t];
        check(unit->bytes[t] <= ROW_BYTES && unit->rows[t] <= ROWS && unit->bytes[t] % 4 == 0);
        check((unit->bytes[t] == 0) == (unit->rows[t] == 0));
    }
}

void nnefc_emulated_release(void);
void nnefc_emulated_release(void) {
    free(unit);
    unit = NULL;
}

void nnefc_emulated_zero(int8_t t);
void nnefc_emulated_zero(int8_t t) {
    check_tile(t);
    memset(unit->data[t], 0, sizeof unit->data[t]);
}

void nnefc_emulated_load(int8_t t, const uint8_t *from, int64_t apart);
void nnefc_emulated_load(int8_t t, const uint8_t *from, int64_t apart) {
    check_tile(t);
    memset(unit->data[t], 0, sizeof unit->data[t]);
    for (int row = 0; row < unit->rows[t]; row++) memcpy(unit->data[t][row], from + row * apart, unit->bytes[t]);
}

void nnefc_emulated_store(int8_t t, uint8_t *to, int64_t apart);
void nnefc_emulated_store(int8_t t, uint8_t *to, int64_t apart) {
    check_tile(t);
    for (int row = 0; row < unit->rows[t]; row++) memcpy(to + row * apart, unit->data[t][row], unit->bytes[t]);
}

/* C = A B: rows, dot operands and columns have to agree. */
static void check_product(int8_t c, int8_t a, int8_t b) {
    check_tile(c), check_tile(a), check_tile(b);
    check(c != a && c != b && a != b);
    check(unit->rows[a] == unit->rows[c] && unit->bytes[b] == unit->bytes[c] && unit->bytes[a] == 4 * unit->rows[b]);
}

/* Subnormal numbers count as zero, and become zero with their sign, whatever the thread's mode is. */
static float flushed(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float wide(const uint8_t *bfloat16) {
    uint8_t bytes[4] = {0, 0, bfloat16[0], bfloat16[1]};
    float x;
    memcpy(&x, bytes, sizeof x);
    return flushed(x);
}

static float fused(float a, float b, float c) { return flushed(__builtin_fmaf(a, b, c)); }

/* Sums of the even and of the odd products, each from zero; then both together are added to the tile. */
void nnefc_emulated_tdpbf16ps(int8_t c, int8_t a, int8_t b);
void nnefc_emulated_tdpbf16ps(int8_t c, int8_t a, int8_t b) {
    check_product(c, a, b);
    for (int m = 0; m < unit->rows[c]; m++)
        for (int n = 0; n < unit->bytes[c]; n += 4) {
            float even = 0, odd = 0, sum;
            for (int k = 0; k < unit->rows[b]; k++) {
                const uint8_t *left = &unit->data[a][m][4 * k], *right = &unit->data[b][k][n];
                even = fused(wide(left), wide(right), even);
                odd = fused(wide(left + 2), wide(right + 2), odd);
            }
            memcpy(&sum, &unit->data[c][m][n], sizeof sum);
            sum = flushed(flushed(sum) + flushed(even + odd));
            memcpy(&unit->data[c][m][n], &sum, sizeof sum);
        }
}

static int32_t item(uint8_t byte, int is_signed) { return is_signed ? (int8_t)byte : byte; }

static void multiply_bytes(int8_t c, int8_t a, int8_t b, int a_is_signed, int b_is_signed) {
    check_product(c, a, b);
    for (int m = 0; m < unit->rows[c]; m++)
        for (int n = 0; n < unit->bytes[c]; n += 4) {
            uint32_t sum;
            memcpy(&sum, &unit->data[c][m][n], sizeof sum);
            for (int k = 0; k < unit->rows[b]; k++)
                for (int i = 0; i < 4; i++)
                    sum += (uint32_t)(item(unit->data[a][m][4 * k + i], a_is_signed) *
                                      item(unit->data[b][k][n + i], b_is_signed));
            memcpy(&unit->data[c][m][n], &sum, sizeof sum);
        }
}

void nnefc_emulated_tdpbusd(int8_t c, int8_t a, int8_t b);
void nnefc_emulated_tdpbusd(int8_t c, int8_t a, int8_t b) { multiply_bytes(c, a, b, 0, 1); }

void nnefc_emulated_tdpbsud(int8_t c, int8_t a, int8_t b);
void nnefc_emulated_tdpbsud(int8_t c, int8_t a, int8_t b) { multiply_bytes(c, a, b, 1, 0); }

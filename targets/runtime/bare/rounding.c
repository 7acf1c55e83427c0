/* Rounding of float32 to whole numbers, for processors that LLVM calls the functions of <math.h> for. Only those that a
 * network needs go into a program, and under these names no other part of it sees them. */
#include <stdint.h>

float nearbyintf(float x);
float rintf(float x);
float roundevenf(float x);
float floorf(float x);
float ceilf(float x);
float truncf(float x);
float roundf(float x);

static uint32_t bits_of(float x) {
    union { float number; uint32_t bits; } both = {x};
    return both.bits;
}

/* To even where it is halfway: adding 2^23 leaves no bits for a fraction. Numbers without one, infinities and NaN
 * stay as they are; so does the sign of zero. */
float roundevenf(float x) {
    uint32_t bits = bits_of(x);
    if ((bits & 0x7FFFFFFFU) >= 0x4B000000U) return x;
    const volatile float large = bits >> 31 ? -0x1p23F : 0x1p23F;
    float sum = x + large, rounded = sum - large;
    return rounded == 0 ? (bits >> 31 ? -0.0F : 0.0F) : rounded;
}

float nearbyintf(float x) { return roundevenf(x); }

float rintf(float x) { return roundevenf(x); }

float floorf(float x) {
    float rounded = roundevenf(x);
    return rounded > x ? rounded - 1 : rounded;
}

float ceilf(float x) {
    float rounded = roundevenf(x);
    return rounded < x ? (rounded == -1 ? -0.0F : rounded + 1) : rounded;
}

float truncf(float x) { return bits_of(x) >> 31 ? ceilf(x) : floorf(x); }

float roundf(float x) {
    float whole = truncf(x), fraction = x - whole;
    return fraction >= 0.5F ? whole + 1 : fraction <= -0.5F ? whole - 1 : whole;
}

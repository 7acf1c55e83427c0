/* What generated networks call of the C library's mathematics; the compiler's own library has it. */
float expf(float x);
float fmaxf(float x, float y);
float fminf(float x, float y);
float nearbyintf(float x);

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)

/* Writing messages: what <stdio.h> has for it. Modules of WebAssembly have functions of their own, for most need nothing else of a
 * C library that is half the size of a small one. They know %s, %d, %u, %lld, %llu and %llx, and a precision of %s. */
#ifndef NNEFC_MESSAGES_H
#define NNEFC_MESSAGES_H

#if defined(__wasi__)
#include <stdarg.h>
#include <stddef.h>

int nnefc_vsnprintf(char *text, size_t size, const char *format, va_list arguments);

__attribute__((format(printf, 3, 4))) int nnefc_snprintf(char *text, size_t size, const char *format, ...);
#else
#include <stdio.h>

#define nnefc_vsnprintf vsnprintf
#define nnefc_snprintf snprintf
#endif

#endif

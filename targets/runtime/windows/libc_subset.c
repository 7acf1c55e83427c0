/* What libraries need of MinGW's C library besides that of Windows itself. With this they are linked without it: before a first
 * network it would have to be compiled, for minutes. Where a network needs more, this file is left out and MinGW's is linked. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <windows.h>

typedef void procedure(void);

/* From the linker: functions that run when the library is loaded, and when it leaves. The first entry is none, the last null. */
extern procedure *const __CTOR_LIST__[], *const __DTOR_LIST__[];

/* Called by Windows. */
BOOL WINAPI nnefc_library_main(HINSTANCE library, DWORD reason, void *reserved) {
    (void)library, (void)reserved;
    size_t count = 0;
    switch (reason) {
        case DLL_PROCESS_ATTACH:
            while (__CTOR_LIST__[count + 1] != NULL) count++;
            for (; count > 0; count--) __CTOR_LIST__[count]();
            break;
        case DLL_PROCESS_DETACH:
            while (__DTOR_LIST__[++count] != NULL) __DTOR_LIST__[count]();
            break;
        default:
            break;
    }
    return TRUE;
}

/* In Windows' library these are a part of functions with more arguments. */

int vsnprintf(char *text, size_t size, const char *format, va_list arguments) {
    return __stdio_common_vsprintf(_CRT_INTERNAL_PRINTF_STANDARD_SNPRINTF_BEHAVIOR, text, size, format, NULL, arguments);
}

int snprintf(char *text, size_t size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, size, format, arguments);
    va_end(arguments);
    return length;
}

/* What MinGW's <math.h> makes of isnan and isinf. */

int __isnan(double value) { return __builtin_isnan(value); }

int __fpclassify(double value) {
    return __builtin_fpclassify(FP_NAN, FP_INFINITE, FP_NORMAL, FP_SUBNORMAL, FP_ZERO, value);
}

/* What compilers call for both of one angle. */

void sincos(double angle, double *sine, double *cosine) {
    *sine = sin(angle);
    *cosine = cos(angle);
}

void sincosf(float angle, float *sine, float *cosine) {
    *sine = sinf(angle);
    *cosine = cosf(angle);
}

#if defined(__x86_64__)
/* Compilers call this before a function takes rax bytes of the stack, if these are more than a page: Windows adds pages to a
 * stack one by one, when they are first touched. It changes no register. */
__asm__(
    ".globl ___chkstk_ms\n"
    "___chkstk_ms:\n"
    "    pushq %rcx\n"
    "    pushq %rax\n"
    "    leaq 24(%rsp), %rcx\n" /* where the stack ends before the call */
    "1:  cmpq $4096, %rax\n"
    "    jbe 2f\n"
    "    subq $4096, %rcx\n"
    "    testq %rcx, (%rcx)\n"
    "    subq $4096, %rax\n"
    "    jmp 1b\n"
    "2:  subq %rax, %rcx\n"
    "    testq %rcx, (%rcx)\n"
    "    popq %rax\n"
    "    popq %rcx\n"
    "    retq\n");
#endif

/* The trained values, as one read-only section of their own: from the file whose name, in quotes, is NNEFC_CONSTANTS. Where
 * zig links ELF files, link/elf_object.py writes such an object itself, which takes less time.
 * On x86-64 the section is marked large: the linker then keeps it out of the 2 GB that code reaches directly. What is so small
 * that a page would be a part of it (NNEFC_FEW_CONSTANTS) is with the other read-only data. */
#if defined(__APPLE__)
    .section __TEXT,__nnefc
    .p2align 12
    .globl _nnefc_constants
    .private_extern _nnefc_constants
_nnefc_constants:
    .incbin NNEFC_CONSTANTS

#elif defined(_WIN32)
    .section .rdata$nnefc,"dr"
    .p2align 12
    .globl nnefc_constants
nnefc_constants:
    .incbin NNEFC_CONSTANTS

#else
#if defined(__wasm__)
    .section .rodata.nnefc,"",@
#elif defined(NNEFC_FEW_CONSTANTS)
    .section .rodata.nnefc,"a",%progbits
#elif defined(__x86_64__)
    .section .lrodata.nnefc,"al",%progbits
#else
    .section .rodata.nnefc,"a",%progbits
#endif
#if defined(NNEFC_FEW_CONSTANTS)
    .p2align 6
#else
    .p2align 12
#endif
    .globl nnefc_constants
    .hidden nnefc_constants
#if defined(__wasm__)
    .type nnefc_constants,@object
#else
    .type nnefc_constants, %object /* Arm takes @ for a comment */
#endif
nnefc_constants:
    .incbin NNEFC_CONSTANTS
.Lend:
    .size nnefc_constants, .Lend - nnefc_constants

#if !defined(__wasm__)
    .section .note.GNU-stack,"",%progbits
#endif
#endif

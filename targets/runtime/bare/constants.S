/* The trained values, from the file whose name, in quotes, is NNEFC_CONSTANTS, as NNEFC_NAME, in a section of that name. */
#define SECTION_OF(name) .rodata.name
#define NAMED(name) SECTION_OF(name)
    .section NAMED(NNEFC_NAME),"a",%progbits
    .p2align 6
    .globl NNEFC_NAME
    .type NNEFC_NAME, %object
NNEFC_NAME:
    .incbin NNEFC_CONSTANTS
.Lend:
    .size NNEFC_NAME, .Lend - NNEFC_NAME
    .section .note.GNU-stack,"",%progbits

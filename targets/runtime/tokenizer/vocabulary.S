/* The vocabulary of a language model, as a read-only section: from the file whose name, in quotes, is NNEFC_VOCABULARY. */
#if defined(__APPLE__)
    .section __TEXT,__nnefc_text
    .p2align 6
    .globl _nnefc_vocabulary_data
    .private_extern _nnefc_vocabulary_data
_nnefc_vocabulary_data:
    .incbin NNEFC_VOCABULARY

#elif defined(_WIN32)
    .section .rdata$nnefc_text,"dr"
    .p2align 6
    .globl nnefc_vocabulary_data
nnefc_vocabulary_data:
    .incbin NNEFC_VOCABULARY

#else
#if defined(__wasm__)
    .section .rodata.nnefc_text,"",@
#else
    .section .rodata.nnefc_text,"a",%progbits
#endif
    .p2align 6
    .globl nnefc_vocabulary_data
    .hidden nnefc_vocabulary_data
#if defined(__wasm__)
    .type nnefc_vocabulary_data,@object
#else
    .type nnefc_vocabulary_data, %object
#endif
nnefc_vocabulary_data:
    .incbin NNEFC_VOCABULARY
.Lvocabulary_end:
    .size nnefc_vocabulary_data, .Lvocabulary_end - nnefc_vocabulary_data

#if !defined(__wasm__)
    .section .note.GNU-stack,"",%progbits
#endif
#endif

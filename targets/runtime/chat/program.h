/* A compiled chat template, as `compiler/tokenizer/chat_template/program.py` writes it into a library.
 *
 * All numbers are little-endian, in words of 32 bits. Offsets count bytes from the beginning of the program. */
#ifndef NNEFC_CHAT_PROGRAM_H
#define NNEFC_CHAT_PROGRAM_H

#include <stdint.h>

enum { NNEFC_PROGRAM_VERSION = 1 };

/* An array of the program: where it begins, and how many elements it has. */
typedef struct nnefc_program_array {
    uint32_t offset, count;
} nnefc_program_array;

typedef struct nnefc_program {
    uint32_t version;
    nnefc_program_array constants; /* of nnefc_constant */
    nnefc_program_array code;      /* words: an nnefc_opcode in the low 8 bits, its operand above; some have further words */
    nnefc_program_array functions; /* of nnefc_function: the template itself, then its macros */
    nnefc_program_array names;     /* constants, the names of parameters */
    nnefc_program_array context;   /* constants, the names of variables that the template does not set */
    nnefc_program_array given;     /* pairs of constants: the names and values of variables that the model gives */
    nnefc_program_array hidden;    /* pairs: the first and last code points of ranges that are not printable */
    uint32_t lower, upper, title;  /* offsets of case tables, 0 where the template needs none */
} nnefc_program;

typedef struct nnefc_constant {
    uint32_t kind, size; /* an nnefc_value_kind; the bytes of a string */
    uint32_t low, high;  /* a number; the offset of a string */
} nnefc_constant;

typedef struct nnefc_function {
    uint32_t entry, slots; /* its first instruction; how many variables it has, its parameters first */
    uint32_t parameters, first_name;
    uint32_t flags, name; /* the name is a constant */
} nnefc_function;

/* Flags of functions. The further parameters follow the others, in this order. */
enum { NNEFC_TAKES_CALLER = 1, NNEFC_TAKES_KEYWORDS = 2, NNEFC_TAKES_VARIABLE = 4 };

/* n is the operand, w the word after the instruction; values are taken from a stack. */
typedef enum nnefc_opcode {
    NNEFC_OP_WRITE_CONSTANT, /* writes constant n */
    NNEFC_OP_WRITE,          /* writes a value as text */
    NNEFC_OP_CONSTANT,       /* pushes constant n */
    NNEFC_OP_LOAD,           /* pushes variable n of the function w functions further out; w2: its name, for messages */
    NNEFC_OP_COPY,           /* the same; without a value it stays so */
    NNEFC_OP_STORE,          /* sets variable n */
    NNEFC_OP_CLEAR,          /* takes its value from variable n */
    NNEFC_OP_CONTEXT,        /* pushes variable n of the context */
    NNEFC_OP_PROVIDED,       /* jumps to n if variable w has a value */
    NNEFC_OP_JUMP,           /* to n */
    NNEFC_OP_JUMP_FALSE,     /* to n if a value is false */
    NNEFC_OP_AND,            /* to n if the last value is false, which stays, or else is taken */
    NNEFC_OP_OR,             /* to n if it is true */
    NNEFC_OP_LIST_BEGIN,     /* pushes an empty list */
    NNEFC_OP_LIST_ADD,       /* appends the value on top to the list below */
    NNEFC_OP_LOOP,           /* sets variable n to a loop over a value */
    NNEFC_OP_NEXT,           /* pushes the next element of the loop in variable w, or jumps to n */
    NNEFC_OP_UNPACK,         /* pushes the n elements of a value, the first on top */
    NNEFC_OP_POP,
    NNEFC_OP_SWAP_COPY, /* a b → b a b */
    NNEFC_OP_DROP_BELOW, /* a b → b */
    NNEFC_OP_ADD,
    NNEFC_OP_SUBTRACT,
    NNEFC_OP_MULTIPLY,
    NNEFC_OP_DIVIDE,
    NNEFC_OP_FLOOR_DIVIDE,
    NNEFC_OP_MODULO,
    NNEFC_OP_POWER,
    NNEFC_OP_NEGATE,
    NNEFC_OP_PLUS,
    NNEFC_OP_NOT,
    NNEFC_OP_EQUAL,
    NNEFC_OP_NOT_EQUAL,
    NNEFC_OP_LESS,
    NNEFC_OP_LESS_EQUAL,
    NNEFC_OP_GREATER,
    NNEFC_OP_GREATER_EQUAL,
    NNEFC_OP_IN,
    NNEFC_OP_NOT_IN,
    NNEFC_OP_JOIN,      /* n values as one text */
    NNEFC_OP_ATTRIBUTE, /* constant n of a value */
    NNEFC_OP_ELEMENT,   /* value[value] */
    NNEFC_OP_SLICE,     /* value[value:value:value], NONE for those that are left out */
    NNEFC_OP_LIST,      /* of n values */
    NNEFC_OP_TUPLE,
    NNEFC_OP_DICT,   /* of n keys and values */
    NNEFC_OP_FILTER, /* n: an nnefc_filter in the low 8 bits, the number of values above */
    NNEFC_OP_TEST,   /* likewise, an nnefc_test */
    NNEFC_OP_CALL,   /* n: how many arguments by position in the low 8 bits, by name above; as many words with these names */
    NNEFC_OP_MACRO,  /* pushes function n */
    NNEFC_OP_SET_ATTRIBUTE, /* of the namespace on top, constant n, to the value below */
    NNEFC_OP_CHECK_NAMESPACE,
    NNEFC_OP_CAPTURE, /* pushes where the text is that is written from now on, */
    NNEFC_OP_CAPTURED, /* and takes it from the output instead */
    NNEFC_OP_RETURN, /* what a macro has written */
    NNEFC_OP_COUNT
} nnefc_opcode;

/* Each with all of its arguments. */
typedef enum nnefc_filter {
    NNEFC_FILTER_ABS,
    NNEFC_FILTER_CAPITALIZE,
    NNEFC_FILTER_DEFAULT,
    NNEFC_FILTER_DICTSORT,
    NNEFC_FILTER_FIRST,
    NNEFC_FILTER_FLOAT,
    NNEFC_FILTER_INDENT,
    NNEFC_FILTER_INT,
    NNEFC_FILTER_PAIRS,
    NNEFC_FILTER_JOIN,
    NNEFC_FILTER_LAST,
    NNEFC_FILTER_LENGTH,
    NNEFC_FILTER_LIST,
    NNEFC_FILTER_LOWER,
    NNEFC_FILTER_MAP_ATTRIBUTE,
    NNEFC_FILTER_MAP,    /* value, the filter's number, its arguments */
    NNEFC_FILTER_REJECT, /* value, the test's number, its arguments */
    NNEFC_FILTER_REJECTATTR,
    NNEFC_FILTER_REPLACE,
    NNEFC_FILTER_REVERSE,
    NNEFC_FILTER_SELECT,
    NNEFC_FILTER_SELECTATTR,
    NNEFC_FILTER_SORT,
    NNEFC_FILTER_STRING,
    NNEFC_FILTER_SUM,
    NNEFC_FILTER_TITLE,
    NNEFC_FILTER_TOJSON,
    NNEFC_FILTER_TRIM,
    NNEFC_FILTER_UNIQUE,
    NNEFC_FILTER_UPPER,
    NNEFC_FILTER_COUNT
} nnefc_filter;

typedef enum nnefc_test {
    NNEFC_TEST_BOOLEAN,
    NNEFC_TEST_DEFINED,
    NNEFC_TEST_DIVISIBLEBY,
    NNEFC_TEST_EVEN,
    NNEFC_TEST_FALSE,
    NNEFC_TEST_FLOAT,
    NNEFC_TEST_INTEGER,
    NNEFC_TEST_ITERABLE,
    NNEFC_TEST_MAPPING,
    NNEFC_TEST_NONE,
    NNEFC_TEST_NUMBER,
    NNEFC_TEST_ODD,
    NNEFC_TEST_SEQUENCE,
    NNEFC_TEST_STRING,
    NNEFC_TEST_TRUE,
    NNEFC_TEST_UNDEFINED,
    NNEFC_TEST_EQ,
    NNEFC_TEST_NE,
    NNEFC_TEST_LT,
    NNEFC_TEST_LE,
    NNEFC_TEST_GT,
    NNEFC_TEST_GE,
    NNEFC_TEST_IN,
    NNEFC_TEST_TRUTH, /* that of select and reject without a test */
    NNEFC_TEST_COUNT
} nnefc_test;

#endif

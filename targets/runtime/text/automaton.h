/* Regular expressions that were compiled to automata: `compiler/operators/text/regex.py` makes them. */
#ifndef NNEFC_TEXT_AUTOMATON_H
#define NNEFC_TEXT_AUTOMATON_H

#include <stdbool.h>
#include <stdint.h>

/* What is on a side of a position in a text: its beginning or end, or a byte of one of three kinds. */
typedef enum nnefc_side { NNEFC_EDGE, NNEFC_WORD, NNEFC_NEWLINE, NNEFC_OTHER } nnefc_side;

/* An automaton over bytes. State 0 is that from which nothing matches. */
typedef struct nnefc_automaton {
    uint32_t states, classes;
    uint32_t starts[4];    /* the first state, by the side before it */
    uint8_t class_of[256]; /* of each byte; bytes of one class lead to the same states */
    uint32_t next[];       /* [states, classes]; after them, of each state, a bit for each side that may follow a match */
} nnefc_automaton;

static inline nnefc_side nnefc_side_of(char byte) {
    if (byte == '\n') return NNEFC_NEWLINE;
    char letter = (char)(byte | 0x20);
    bool is_word = (byte >= '0' && byte <= '9') || (letter >= 'a' && letter <= 'z') || byte == '_';
    return is_word ? NNEFC_WORD : NNEFC_OTHER;
}

static inline uint32_t nnefc_state_after(const nnefc_automaton *machine, uint32_t state, char byte) {
    return machine->next[state * machine->classes + machine->class_of[(uint8_t)byte]];
}

/* Whether a match may end in a state, before what follows. */
static inline bool nnefc_accepts(const nnefc_automaton *machine, uint32_t state, nnefc_side after) {
    return (machine->next[machine->states * machine->classes + state] >> after & 1) != 0;
}

#endif

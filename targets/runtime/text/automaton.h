/* Regular expressions that were compiled to automata: `compiler/operators/regex.py` makes them. */
#ifndef NNEFC_TEXT_AUTOMATON_H
#define NNEFC_TEXT_AUTOMATON_H

#include <stdbool.h>
#include <stdint.h>

/* An automaton over bytes. State 0 is that from which nothing matches, state 1 the first. */
typedef struct nnefc_automaton {
    uint32_t states, classes;
    uint8_t class_of[256]; /* of each byte; bytes of one class lead to the same states */
    uint32_t next[];       /* [states, classes]; after them, of each state, whether a text may end there */
} nnefc_automaton;

static inline uint32_t nnefc_state_after(const nnefc_automaton *machine, uint32_t state, char byte) {
    return machine->next[state * machine->classes + machine->class_of[(uint8_t)byte]];
}

static inline bool nnefc_accepts(const nnefc_automaton *machine, uint32_t state) {
    return machine->next[machine->states * machine->classes + state] != 0;
}

#endif

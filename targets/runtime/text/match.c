/* Regular expressions that were compiled to automata: `compiler/operators/regex.py` makes them. */
#include "text/text.h"

/* An automaton over bytes. State 0 is that from which nothing matches, state 1 the first. */
typedef struct automaton {
    uint32_t states, classes;
    uint8_t class_of[256]; /* of each byte; bytes of one class lead to the same states */
    uint32_t next[];       /* [states, classes]; after them, of each state, whether a text may end there */
} automaton;

/* Whether the automaton takes the whole of a text. */
int32_t nnefc_text_matches(nnefc_text text, const void *where);

int32_t nnefc_text_matches(nnefc_text text, const void *where) {
    if (nnefc_run_failed()) return 0;
    const automaton *machine = where;
    nnefc_string bytes = nnefc_text_bytes(text);
    uint32_t state = 1;
    for (size_t i = 0; i < bytes.size && state != 0; i++)
        state = machine->next[state * machine->classes + machine->class_of[(uint8_t)bytes.data[i]]];
    return machine->next[machine->states * machine->classes + state] != 0;
}

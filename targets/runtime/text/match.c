/* Matches regular expressions against whole strings. */
#include "text/automaton.h"
#include "text/text.h"

/* Whether the automaton takes the whole of a text. */
int32_t nnefc_text_matches(nnefc_text text, const void *where);

int32_t nnefc_text_matches(nnefc_text text, const void *where) {
    if (nnefc_run_failed()) return 0;
    const nnefc_automaton *machine = where;
    nnefc_string bytes = nnefc_text_bytes(text);
    uint32_t state = machine->starts[NNEFC_EDGE];
    for (size_t i = 0; i < bytes.size && state != 0; i++) state = nnefc_state_after(machine, state, bytes.data[i]);
    return nnefc_accepts(machine, state, NNEFC_EDGE);
}

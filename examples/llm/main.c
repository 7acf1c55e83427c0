/* Writes the likeliest tokens that follow others, by a language model that nnefc compiled.
 *
 *     cc -O2 -I../../targets/runtime main.c model.so -o main -Wl,-rpath,'$ORIGIN'
 *     ./main 100 2 1 504 3575        # at most 100 tokens, up to token 2, after the tokens 1, 504 and 3575
 *
 * A library remembers what it has read: it reads the prompt at once, then each token that it has given. One that was made
 * with --sample 1 chooses the token itself. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "nnefc.h"

/* Runs on `count` tokens; the likeliest token after them, or -1 with a message. */
static int64_t next_token(nnefc_session *session, const int64_t *tokens, int64_t count) {
    const int64_t shape[] = {1, count};
    nnefc_input input = {tokens, (uint64_t)count * sizeof *tokens, shape};
    nnefc_output output = {0}; /* in memory of the session's */
    if (nnefc_run_sized(session, &input, &output) != NNEFC_OK) {
        fprintf(stderr, "%s\n", nnefc_last_error(session));
        return -1;
    }
    if (output.bytes == sizeof(int64_t)) return *(const int64_t *)output.data;
    const float *logits = output.data;
    int64_t words = (int64_t)(output.bytes / sizeof *logits), best = 0;
    for (int64_t word = 1; word < words; word++)
        if (logits[word] > logits[best]) best = word;
    return best;
}

int main(int count, char **words) {
    if (count < 4) {
        fprintf(stderr, "usage: %s MOST END TOKEN...\n", words[0]);
        return 2;
    }
    int64_t length = count - 3, end = strtoll(words[2], NULL, 10);
    int64_t *tokens = malloc((size_t)length * sizeof *tokens);
    nnefc_session *session = NULL;
    if (tokens == NULL || nnefc_create(NULL, &session) != NNEFC_OK) {
        fprintf(stderr, "%s\n", tokens == NULL ? "no memory" : nnefc_last_error(NULL));
        free(tokens);
        return 1;
    }
    for (int64_t i = 0; i < length; i++) tokens[i] = strtoll(words[3 + i], NULL, 10);
    int64_t token = 0;
    for (int64_t left = strtoll(words[1], NULL, 10); left > 0; left--) {
        token = next_token(session, tokens, length);
        if (token < 0 || token == end) break;
        printf("%" PRId64 "\n", token);
        fflush(stdout);
        tokens[0] = token, length = 1;
    }
    nnefc_destroy(session);
    free(tokens);
    return token < 0;
}

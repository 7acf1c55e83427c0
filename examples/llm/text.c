/* Continues a text with a language model that nnefc compiled with its tokenizer, or answers a message.
 *
 *     nnefc compile model.gguf -o model.so
 *     cc -O2 -I"$(python -c 'import nnefc.targets.runtime as r; print(*r.__path__)')" text.c model.so -o text -Wl,-rpath,'$ORIGIN'
 *     ./text 100 "The capital of France is"     # at most 100 tokens, the likeliest each time
 *
 * With -DCHAT it answers a message, by the model's chat template:
 *
 *     ./text 100 "What is the capital of France?" */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nnefc.h"

enum { MAX_TEXT = 1024 };

/* Whether a token ends a text, by the metadata `tokenizer.end_tokens`: numbers with spaces between. */
static bool is_end(int64_t token) {
    const nnefc_description *network = nnefc_describe();
    for (uint32_t i = 0; i < network->metadata_count; i++) {
        if (strcmp(network->metadata[i].key.data, "tokenizer.end_tokens") != 0) continue;
        char *after = NULL;
        for (const char *at = network->metadata[i].value.data; *at != '\0'; at = *after == ' ' ? after + 1 : after)
            if (strtoll(at, &after, 10) == token) return true;
    }
    return false;
}

/* Runs on `count` tokens; returns the likeliest token after them, or -1 with a message. */
static int64_t next_token(nnefc_session *session, const int64_t *tokens, size_t count) {
    const int64_t shape[] = {1, (int64_t)count};
    nnefc_input input = {tokens, (uint64_t)count * sizeof *tokens, shape};
    nnefc_output output = {0}; /* in memory of the session's */
    if (nnefc_run_sized(session, &input, &output) != NNEFC_OK) {
        fprintf(stderr, "%s\n", nnefc_last_error(session));
        return -1;
    }
    const float *logits = output.data;
    int64_t best = 0;
    for (int64_t token = 1; token < (int64_t)(output.bytes / sizeof *logits); token++)
        if (logits[token] > logits[best]) best = token;
    return best;
}

/* The tokens of a text, in memory to be freed; null with a message. */
static int64_t *tokens_of(const char *text, size_t size, uint32_t flags, size_t *count) {
    size_t room = size + 16;
    int64_t *tokens = malloc(room * sizeof *tokens);
    nnefc_status status = tokens == NULL ? NNEFC_OUT_OF_MEMORY : NNEFC_OK;
    if (status == NNEFC_OK) status = nnefc_tokenize(text, size, flags, tokens, room, count);
    if (status == NNEFC_OK && *count > 0) return tokens;
    fprintf(stderr, "no tokens: %s\n", status == NNEFC_OK ? "the text is empty" : nnefc_status_name(status));
    free(tokens);
    return NULL;
}

#ifdef CHAT
/* The tokens of a conversation that begins with a message, and of what comes before the reply. */
static int64_t *prompt_of(const char *message, size_t *count) {
    char error[256] = "";
    nnefc_message messages[] = {{.role = {"user", 4}, .content = {message, strlen(message)}}};
    nnefc_chat_options options = {.struct_size = sizeof options, .flags = NNEFC_ADD_GENERATION_PROMPT};
    options.local_time = (int64_t)time(NULL); /* UTC here; some templates write the date */
    options.error = error, options.error_room = sizeof error;
    size_t size = 0;
    nnefc_status status = nnefc_chat(messages, 1, &options, NULL, 0, &size); /* how long it is */
    char *text = status == NNEFC_TOO_SMALL ? malloc(size) : NULL;
    if (text != NULL) status = nnefc_chat(messages, 1, &options, text, size, &size);
    int64_t *tokens = NULL;
    if (text != NULL && status == NNEFC_OK)
        tokens = tokens_of(text, size, NNEFC_FIND_CONTROL, count);
    else
        fprintf(stderr, "no conversation: %s %s\n", nnefc_status_name(status), error);
    free(text);
    return tokens;
}
#else
static int64_t *prompt_of(const char *text, size_t *count) {
    return tokens_of(text, strlen(text), NNEFC_WITH_BEGIN_AND_END, count);
}
#endif

int main(int argument_count, char **arguments) {
    size_t count = 0;
    if (argument_count != 3) {
        fprintf(stderr, "usage: %s MAX_TOKENS TEXT\n", arguments[0]);
        return 2;
    }
    int64_t *tokens = prompt_of(arguments[2], &count);
    if (tokens == NULL) return 1;
    nnefc_session *session = NULL;
    if (nnefc_create(NULL, &session) != NNEFC_OK) {
        fprintf(stderr, "%s\n", nnefc_last_error(NULL));
        free(tokens);
        return 1;
    }
    int64_t token = 0;
    for (long left = strtol(arguments[1], NULL, 10); left > 0; left--) {
        char text[MAX_TEXT];
        size_t size = 0;
        token = next_token(session, tokens, count);
        if (token < 0 || is_end(token)) break;
        if (nnefc_detokenize(&token, 1, NNEFC_SKIP_CONTROL | NNEFC_CONTINUES, text, sizeof text, &size) != NNEFC_OK) break;
        fwrite(text, 1, size, stdout);
        fflush(stdout);
        tokens[0] = token, count = 1;
    }
    putchar('\n');
    nnefc_destroy(session);
    free(tokens);
    return token < 0;
}

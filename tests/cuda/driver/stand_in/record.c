/* The calls, misuse, and failures that tests want. */

#include "stand_in.h"

#include <stdarg.h>

static pthread_mutex_t mutex; /* recursive: a kernel of the host may not call the driver, but checks of its may */
static char *log_text;
static size_t log_bytes;
static char complaints[8192];
static unsigned calls;      /* since fake_fail or fake_clear */
static unsigned fails_at;   /* 0 for never */
static int fails_with;
static char fails_in[64];   /* only calls of this function count; "" for all */

__attribute__((format(printf, 1, 2))) void write_down(const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    log_text = realloc(log_text, log_bytes + (size_t)length + 2);
    memcpy(log_text + log_bytes, line, (size_t)length);
    log_bytes += (size_t)length;
    log_text[log_bytes++] = '\n';
    log_text[log_bytes] = '\0';
}

__attribute__((format(printf, 2, 3))) int complain(int result, const char *format, ...) {
    size_t used = strlen(complaints);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(complaints + used, sizeof complaints - used, format, arguments);
    va_end(arguments);
    used = strlen(complaints);
    snprintf(complaints + used, sizeof complaints - used, "\n");
    return result;
}

int count_call(const char *name) {
    if (fails_in[0] != '\0' && strcmp(fails_in, name) != 0) return OK;
    calls++;
    if (calls != fails_at) return OK;
    write_down("  fails with %d", fails_with);
    return fails_with;
}

void enter(void) { pthread_mutex_lock(&mutex); }

int leave(int result) {
    pthread_mutex_unlock(&mutex);
    return result;
}

/* Begins a new log without complaints. */
EXPORT void fake_clear(void) {
    enter();
    free(log_text);
    log_text = NULL;
    log_bytes = 0;
    complaints[0] = '\0';
    calls = fails_at = 0;
    fails_in[0] = '\0';
    leave(OK);
}

/* Lets the n-th call from here on fail, of a function ("" for all); 0 for none. What frees does so and fails then. */
EXPORT void fake_fail(unsigned call, int result, const char *function) {
    enter();
    calls = 0;
    fails_at = call;
    fails_with = result;
    snprintf(fails_in, sizeof fails_in, "%s", function);
    leave(OK);
}

/* Calls since fake_fail or fake_clear, of the function that may fail. */
EXPORT unsigned fake_calls(void) {
    enter();
    unsigned count = calls;
    leave(OK);
    return count;
}

EXPORT const char *fake_log(void) { return log_text != NULL ? log_text : ""; }

EXPORT const char *fake_complaints(void) { return complaints; }

__attribute__((constructor)) static void prepare(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

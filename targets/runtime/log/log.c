#include "log/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "machine/cpu.h"
#include "messages.h"

enum { MESSAGE_BYTES = 640 }; /* of errors, and the words around them */

/* The program's function. */
static struct {
    atomic_int level; /* 0 if there is none */
    nnefc_log *function;
    void *context;
    atomic_uint users;    /* threads that look at it, or are in it */
    atomic_flag changing; /* a thread replaces it */
} receiver = {.changing = ATOMIC_FLAG_INIT};

void nnefc_set_log(nnefc_log *log, void *context, int32_t level) {
    while (atomic_flag_test_and_set(&receiver.changing)) nnefc_cpu_relax();
    atomic_store(&receiver.level, 0);
    while (atomic_load(&receiver.users) > 0) nnefc_cpu_relax(); /* who came before `level` was 0 */
    receiver.function = log;
    receiver.context = context;
    atomic_store(&receiver.level, log != NULL && level > 0 ? level : 0);
    atomic_flag_clear(&receiver.changing);
}

void nnefc_log_message(nnefc_log_level level, const char *format, ...) {
    if (atomic_load_explicit(&receiver.level, memory_order_relaxed) < (int)level) return;
    atomic_fetch_add(&receiver.users, 1);
    if (atomic_load(&receiver.level) >= (int)level) {
        char text[MESSAGE_BYTES];
        va_list arguments;
        va_start(arguments, format);
        nnefc_vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        receiver.function(receiver.context, (int32_t)level, text);
    }
    atomic_fetch_sub(&receiver.users, 1);
}

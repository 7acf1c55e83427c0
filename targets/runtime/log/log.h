/* What a library has to say while it works, for a function of the program's. */
#ifndef NNEFC_LOG_H
#define NNEFC_LOG_H

#include "nnefc.h"

#ifdef NNEFC_LOG
/* Calls the program's function with a message of a level, formatted like printf, if it wants such. */
__attribute__((format(printf, 2, 3))) void nnefc_log_message(nnefc_log_level level, const char *format, ...);
#else
__attribute__((format(printf, 2, 3))) static inline void nnefc_log_message(nnefc_log_level level, const char *format, ...) {
    (void)level, (void)format;
}
#endif

#endif

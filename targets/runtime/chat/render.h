/* Renders a conversation by a compiled chat template. */
#ifndef NNEFC_CHAT_RENDER_H
#define NNEFC_CHAT_RENDER_H

#include "chat/program.h"
#include "nnefc.h"

/* The program of the library, an nnefc_program in words. */
extern const uint32_t nnefc_chat_program[];

/* What nnefc_chat does, by any program. */
nnefc_status nnefc_chat_render(const nnefc_program *program, const nnefc_message *messages, size_t count,
                               const nnefc_chat_options *options, char *text, size_t room, size_t *size);

#endif

/* The public function for conversations: nnefc_chat. */
#include "chat/render.h"

nnefc_status nnefc_chat(const nnefc_message *messages, size_t count, const nnefc_chat_options *options, char *text, size_t room,
                        size_t *size) {
    return nnefc_chat_render((const nnefc_program *)nnefc_chat_program, messages, count, options, text, room, size);
}

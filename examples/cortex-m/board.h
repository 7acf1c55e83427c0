#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

/* Writes to the debugger's console. */
void board_write(const void *data, uint32_t bytes);

/* Ends the program. */
_Noreturn void board_exit(int status);

#endif

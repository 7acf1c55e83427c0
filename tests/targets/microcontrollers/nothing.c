/* In place of a network, to see what a program takes without one. */
#include <stdint.h>

uint8_t net_arena[1];

int net_run(void);
int net_run(void) { return 0; }

void net_reset(void);
void net_reset(void) {}

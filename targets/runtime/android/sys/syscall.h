/* sys/syscall.h of Android: see bionic.h. */
#include <bionic.h>

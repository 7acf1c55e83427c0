/* sys/auxv.h of Android: see bionic.h. */
#include <bionic.h>

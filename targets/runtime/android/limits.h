/* limits.h of Android, behind the compiler's, which includes it: what the runtime needs of the system's limits. */
#ifndef NNEFC_BIONIC_LIMITS_H
#define NNEFC_BIONIC_LIMITS_H
#define PATH_MAX 4096
#endif

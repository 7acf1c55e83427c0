/* What the runtime needs of Android's C library, as its binary interface has it: sizes and numbers of types and constants, and
 * functions. With it, libraries are compiled where Android's NDK is not installed. Each other header here includes this one; a
 * C file that needs more is compiled by the NDK's compiler. */
#ifndef NNEFC_BIONIC_H
#define NNEFC_BIONIC_H

#if !defined(__ANDROID__)
#error "the headers of this folder are for Android"
#endif

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__LP64__)
#define NNEFC_WORDS(of64, of32) of64
#else
#define NNEFC_WORDS(of64, of32) of32
#endif

/* sys/types.h */
typedef long ssize_t;
typedef long off_t;
typedef int pid_t;
typedef unsigned int uid_t;
typedef int clockid_t;
typedef long time_t;

/* time.h */
struct timespec {
    time_t tv_sec;
    long tv_nsec;
};
#define CLOCK_REALTIME 0
#define CLOCK_MONOTONIC 1
#define CLOCK_THREAD_CPUTIME_ID 3
int clock_gettime(clockid_t clock, struct timespec *time);

/* errno.h */
int *__errno(void) __attribute__((const));
#define errno (*__errno())
#define ENOMEM 12
#define EINVAL 22
#define ERANGE 34

/* string.h */
void *memchr(const void *bytes, int byte, size_t size);
int memcmp(const void *a, const void *b, size_t size);
void *memcpy(void *to, const void *from, size_t size);
void *memmem(const void *bytes, size_t size, const void *part, size_t part_size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *bytes, int byte, size_t size);
char *strchr(const char *text, int character);
int strcmp(const char *a, const char *b);
size_t strcspn(const char *text, const char *characters);
char *strerror(int number);
size_t strlen(const char *text);
int strncmp(const char *a, const char *b, size_t size);
char *strrchr(const char *text, int character);
size_t strspn(const char *text, const char *characters);
char *strstr(const char *text, const char *part);

/* stdlib.h */
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
__attribute__((noreturn)) void abort(void);
int abs(int value);
void *bsearch(const void *key, const void *base, size_t count, size_t size, int (*compare)(const void *, const void *));
void *calloc(size_t count, size_t size);
void free(void *memory);
char *getenv(const char *name);
void *malloc(size_t size);
int posix_memalign(void **memory, size_t alignment, size_t size);
void qsort(void *base, size_t count, size_t size, int (*compare)(const void *, const void *));
void *realloc(void *memory, size_t size);
double strtod(const char *text, char **end);
float strtof(const char *text, char **end);
long strtol(const char *text, char **end, int base);
long long strtoll(const char *text, char **end, int base);
unsigned long strtoul(const char *text, char **end, int base);
unsigned long long strtoull(const char *text, char **end, int base);

/* stdio.h */
typedef struct __sFILE FILE;
extern FILE *stdin;
extern FILE *stdout;
extern FILE *stderr;
int fclose(FILE *file);
char *fgets(char *text, int size, FILE *file);
FILE *fopen(const char *path, const char *mode);
__attribute__((format(printf, 2, 3))) int fprintf(FILE *file, const char *format, ...);
__attribute__((format(printf, 1, 2))) int printf(const char *format, ...);
__attribute__((format(printf, 3, 4))) int snprintf(char *text, size_t size, const char *format, ...);
__attribute__((format(scanf, 2, 3))) int sscanf(const char *text, const char *format, ...);
int vsnprintf(char *text, size_t size, const char *format, va_list arguments);

/* locale.h */
struct lconv {
    char *decimal_point;
};
struct lconv *localeconv(void);

/* fcntl.h */
#define O_RDONLY 0
#define O_NONBLOCK 04000
#define O_CLOEXEC 02000000
int open(const char *path, int flags, ...);

/* unistd.h */
int close(int file);
pid_t getpid(void);
long syscall(long number, ...);
#define _SC_PAGESIZE 0x27
#define _SC_NPROCESSORS_ONLN 0x61
long sysconf(int name);

/* sys/syscall.h */
#if defined(__aarch64__)
#define SYS_gettid 178
#elif defined(__x86_64__)
#define SYS_gettid 186
#define SYS_arch_prctl 158
#else
#define SYS_gettid 224
#endif

/* sys/mman.h */
#define PROT_READ 1
#define PROT_WRITE 2
#define MAP_SHARED 1
#define MAP_PRIVATE 2
#define MAP_ANONYMOUS 0x20
#define MAP_POPULATE 0x8000
#define MAP_FAILED ((void *)-1)
int madvise(void *memory, size_t size, int advice);
void *mmap(void *memory, size_t size, int protection, int flags, int file, off_t offset);
int munmap(void *memory, size_t size);

/* sys/stat.h */
#define S_IFMT 0170000
#define S_IFREG 0100000
#define S_ISREG(mode) (((mode)&S_IFMT) == S_IFREG)
#if defined(__aarch64__)
struct stat {
    uint64_t st_dev, st_ino;
    uint32_t st_mode, st_nlink;
    uid_t st_uid, st_gid;
    uint64_t st_rdev, unused1;
    off_t st_size;
    int st_blksize, unused2;
    long st_blocks;
    struct timespec st_atim, st_mtim, st_ctim;
    uint32_t unused3, unused4;
};
#elif defined(__x86_64__)
struct stat {
    uint64_t st_dev, st_ino, st_nlink;
    uint32_t st_mode;
    uid_t st_uid, st_gid;
    uint32_t unused1;
    uint64_t st_rdev;
    off_t st_size;
    long st_blksize, st_blocks;
    struct timespec st_atim, st_mtim, st_ctim;
    long unused2[3];
};
#else
struct stat {
    unsigned long long st_dev;
    unsigned char unused1[4];
    unsigned long unused2;
    unsigned int st_mode, st_nlink;
    uid_t st_uid, st_gid;
    unsigned long long st_rdev;
    unsigned char unused3[4];
    long long st_size;
    unsigned long st_blksize;
    unsigned long long st_blocks;
    struct timespec st_atim, st_mtim, st_ctim;
    unsigned long long st_ino;
};
#endif
int fstat(int file, struct stat *status);

/* sys/auxv.h */
#define AT_PLATFORM 15
#define AT_HWCAP 16
#define AT_HWCAP2 26
unsigned long getauxval(unsigned long kind);

/* sys/prctl.h */
int prctl(int operation, ...);

/* sched.h */
#define CPU_SETSIZE NNEFC_WORDS(1024, 32)
typedef struct {
    unsigned long bits[CPU_SETSIZE / (8 * sizeof(long))];
} cpu_set_t;
#define CPU_ALLOC_SIZE(count) (((count) + 8 * sizeof(long) - 1) / (8 * sizeof(long)) * sizeof(long))
#define CPU_ALLOC(count) __sched_cpualloc(count)
#define CPU_FREE(set) __sched_cpufree(set)
#define CPU_COUNT_S(bytes, set) __sched_cpucount(bytes, set)
#define CPU_WORD_(cpu, set) ((set)->bits[(cpu) / (8 * sizeof(long))])
#define CPU_MASK_(cpu) (1UL << ((cpu) % (8 * sizeof(long))))
#define CPU_ZERO_S(bytes, set) memset(set, 0, bytes)
#define CPU_SET_S(cpu, bytes, set) ((cpu) < 8 * (bytes) ? (void)(CPU_WORD_(cpu, set) |= CPU_MASK_(cpu)) : (void)0)
#define CPU_CLR_S(cpu, bytes, set) ((cpu) < 8 * (bytes) ? (void)(CPU_WORD_(cpu, set) &= ~CPU_MASK_(cpu)) : (void)0)
#define CPU_ISSET_S(cpu, bytes, set) ((cpu) < 8 * (bytes) && (CPU_WORD_(cpu, set) & CPU_MASK_(cpu)) != 0)
#define CPU_ZERO(set) CPU_ZERO_S(sizeof(cpu_set_t), set)
#define CPU_SET(cpu, set) CPU_SET_S(cpu, sizeof(cpu_set_t), set)
#define CPU_CLR(cpu, set) CPU_CLR_S(cpu, sizeof(cpu_set_t), set)
#define CPU_ISSET(cpu, set) CPU_ISSET_S(cpu, sizeof(cpu_set_t), set)
cpu_set_t *__sched_cpualloc(size_t count);
int __sched_cpucount(size_t bytes, const cpu_set_t *set);
void __sched_cpufree(cpu_set_t *set);
int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *set);
int sched_getcpu(void);
int sched_setaffinity(pid_t process, size_t bytes, const cpu_set_t *set);
int sched_yield(void);

/* signal.h */
#define SIG_SETMASK 2
typedef unsigned long sigset_t;
int sigfillset(sigset_t *set);

/* pthread.h */
typedef long pthread_t;
typedef struct {
    uint32_t flags;
    void *stack_base;
    size_t stack_size, guard_size;
    int32_t policy, priority;
#if defined(__LP64__)
    char unused[16];
#endif
} pthread_attr_t;
typedef struct {
    int32_t words[NNEFC_WORDS(10, 1)];
} pthread_mutex_t;
typedef struct {
    int32_t words[NNEFC_WORDS(12, 1)];
} pthread_cond_t;
typedef long pthread_mutexattr_t, pthread_condattr_t;
int pthread_attr_destroy(pthread_attr_t *attributes);
int pthread_attr_init(pthread_attr_t *attributes);
int pthread_attr_setstacksize(pthread_attr_t *attributes, size_t size);
int pthread_cond_broadcast(pthread_cond_t *condition);
int pthread_cond_destroy(pthread_cond_t *condition);
int pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes);
int pthread_cond_signal(pthread_cond_t *condition);
int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument);
int pthread_getcpuclockid(pthread_t thread, clockid_t *clock);
int pthread_join(pthread_t thread, void **result);
int pthread_mutex_destroy(pthread_mutex_t *mutex);
int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);
int pthread_mutex_lock(pthread_mutex_t *mutex);
int pthread_mutex_unlock(pthread_mutex_t *mutex);
pthread_t pthread_self(void) __attribute__((const));
int pthread_sigmask(int how, const sigset_t *set, sigset_t *before);

/* dlfcn.h */
typedef struct {
    const char *dli_fname;
    void *dli_fbase;
    const char *dli_sname;
    void *dli_saddr;
} Dl_info;
int dladdr(const void *address, Dl_info *information);

/* math.h */
#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()
#define HUGE_VAL __builtin_huge_val()
#define isnan(value) __builtin_isnan(value)
#define isinf(value) __builtin_isinf(value)
#define isfinite(value) __builtin_isfinite(value)
#define signbit(value) __builtin_signbit(value)
#define NNEFC_OF_ONE(name) \
    double name(double);   \
    float name##f(float);
#define NNEFC_OF_TWO(name)       \
    double name(double, double); \
    float name##f(float, float);
NNEFC_OF_ONE(acos)
NNEFC_OF_ONE(acosh)
NNEFC_OF_ONE(asin)
NNEFC_OF_ONE(asinh)
NNEFC_OF_ONE(atan)
NNEFC_OF_ONE(atanh)
NNEFC_OF_ONE(cbrt)
NNEFC_OF_ONE(ceil)
NNEFC_OF_ONE(cos)
NNEFC_OF_ONE(cosh)
NNEFC_OF_ONE(erf)
NNEFC_OF_ONE(erfc)
NNEFC_OF_ONE(exp)
NNEFC_OF_ONE(exp2)
NNEFC_OF_ONE(expm1)
NNEFC_OF_ONE(fabs)
NNEFC_OF_ONE(floor)
NNEFC_OF_ONE(lgamma)
NNEFC_OF_ONE(log)
NNEFC_OF_ONE(log10)
NNEFC_OF_ONE(log1p)
NNEFC_OF_ONE(log2)
NNEFC_OF_ONE(nearbyint)
NNEFC_OF_ONE(rint)
NNEFC_OF_ONE(round)
NNEFC_OF_ONE(sin)
NNEFC_OF_ONE(sinh)
NNEFC_OF_ONE(sqrt)
NNEFC_OF_ONE(tan)
NNEFC_OF_ONE(tanh)
NNEFC_OF_ONE(tgamma)
NNEFC_OF_ONE(trunc)
NNEFC_OF_TWO(atan2)
NNEFC_OF_TWO(copysign)
NNEFC_OF_TWO(fmax)
NNEFC_OF_TWO(fmin)
NNEFC_OF_TWO(fmod)
NNEFC_OF_TWO(hypot)
NNEFC_OF_TWO(pow)
NNEFC_OF_TWO(remainder)
double fma(double, double, double);
float fmaf(float, float, float);
double ldexp(double, int);
float ldexpf(float, int);

#ifdef __cplusplus
}
#endif
#endif

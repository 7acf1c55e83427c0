/* The threads of POSIX, as far as the runtime uses them, made of those of Windows in system.c, and of what WebAssembly has in
 * their position in workers.c, or not at all: a library of them would have to be compiled for users' first network. The names are
 * other ones for the linker, for C files of users may be linked with that library. */
#ifndef NNEFC_OWN_THREADS_H
#define NNEFC_OWN_THREADS_H

typedef void *nnefc_thread;
typedef struct nnefc_mutex {
    void *owner; /* Windows: an SRWLOCK; WebAssembly: whether it is held, and whether others wait */
} nnefc_mutex;
typedef struct nnefc_condition {
    void *waiting; /* Windows: a CONDITION_VARIABLE; WebAssembly: how often it was signalled */
} nnefc_condition;

#define pthread_t nnefc_thread
#define pthread_mutex_t nnefc_mutex
#define pthread_cond_t nnefc_condition
#define pthread_join nnefc_thread_join
#define pthread_mutex_init nnefc_mutex_init
#define pthread_mutex_destroy nnefc_mutex_destroy
#define pthread_mutex_lock nnefc_mutex_lock
#define pthread_mutex_unlock nnefc_mutex_unlock
#define pthread_cond_init nnefc_condition_init
#define pthread_cond_destroy nnefc_condition_destroy
#define pthread_cond_wait nnefc_condition_wait
#define pthread_cond_signal nnefc_condition_signal
#define pthread_cond_broadcast nnefc_condition_broadcast

/* As those of POSIX; they succeed, and return 0. There are no attributes and no results of threads: null instead of them. */
int pthread_join(pthread_t thread, void **result);
int pthread_mutex_init(pthread_mutex_t *mutex, const void *attributes);
int pthread_mutex_destroy(pthread_mutex_t *mutex);
int pthread_mutex_lock(pthread_mutex_t *mutex);
int pthread_mutex_unlock(pthread_mutex_t *mutex);
int pthread_cond_init(pthread_cond_t *condition, const void *attributes);
int pthread_cond_destroy(pthread_cond_t *condition);
int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int pthread_cond_signal(pthread_cond_t *condition);
int pthread_cond_broadcast(pthread_cond_t *condition);

#endif

/* All that lives: objects, and which context is current. */

#include "stand_in.h"

#include <sys/mman.h>

const char *const kind_names[] = {"context", "module", "function", "memory", "pinned memory", "stream", "event", "graph", "runnable graph"};

object *objects;
static __thread object *stack[MAX_STACK]; /* of contexts */
static __thread int depth;

object *make(kind kind, object *context) {
    object *made = calloc(1, sizeof *made);
    made->kind = kind;
    made->context = context;
    made->device = context != NULL ? context->device : 0;
    made->next = objects;
    objects = made;
    return made;
}

bool is_live(const object *what, kind kind) {
    for (const object *o = objects; o != NULL; o = o->next)
        if (o == what) return o->kind == kind;
    return false;
}

object *find(const void *start, size_t bytes) {
    for (object *o = objects; o != NULL; o = o->next)
        if ((o->kind == MEMORY || o->kind == PINNED) && (const char *)start >= (char *)o->start &&
            (const char *)start + bytes <= (char *)o->start + o->bytes)
            return o;
    return NULL;
}

void destroy(object *what) {
    for (object **link = &objects; *link != NULL; link = &(*link)->next) {
        if (*link != what) continue;
        *link = what->next;
        break;
    }
    if (what->kind == MEMORY) munmap(what->start, what->mapped + (size_t)sysconf(_SC_PAGESIZE));
    if (what->kind == PINNED) free(what->start);
    clear(&what->queue);
    free(what);
}

object *present(void) { return depth > 0 && is_live(stack[depth - 1], CONTEXT) ? stack[depth - 1] : NULL; }

bool push(object *context) {
    if (depth == MAX_STACK) return false;
    stack[depth++] = context;
    return true;
}

object *pop(void) { return depth > 0 ? stack[--depth] : NULL; }

bool captures(void) {
    for (object *o = objects; o != NULL; o = o->next)
        if (o->kind == STREAM && o->capture != NULL && pthread_equal(o->capturer, pthread_self())) {
            o->capture_is_void = true;
            return true;
        }
    return false;
}

object *stream_of(object *handle, object *context) {
    if ((uintptr_t)handle > 2) return is_live(handle, STREAM) && handle->context == context ? handle : NULL;
    for (object *o = objects; o != NULL; o = o->next)
        if (o->kind == STREAM && o->context == context && strcmp(o->name, "default") == 0) return o;
    object *made = make(STREAM, context);
    strcpy(made->name, "default");
    return made;
}

/* Objects that live, one a line: all that are not freed. A context's default stream is a part of it. */
EXPORT const char *fake_objects(void) {
    static char text[1 << 16];
    enter();
    size_t used = 0;
    text[0] = '\0';
    for (const object *o = objects; o != NULL; o = o->next)
        if (strcmp(o->name, "default") != 0) used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s %zu\n", kind_names[o->kind], o->name[0] ? " " : "", o->name, o->bytes);
    leave(OK);
    return text;
}

/* How many contexts are current in the calling thread. */
EXPORT int fake_depth(void) { return depth; }

/* What is put off on streams and in graphs, and how it is done: copies, launches of emulated kernels, waits. */

#include "stand_in.h"

#include <dlfcn.h>

static const char *(*emulator_error)(void);
static int (*emulator_memory)(void *begin, uint64_t bytes, const char *name, int writable);
static void (*emulator_forget)(void);

static void *kernels; /* the library of emulated kernels */
static char kernels_path[4096];

void *open_kernels(void) {
    const char *path = getenv("NNEFC_EMULATED_KERNELS");
    if (path == NULL) return NULL;
    if (kernels == NULL || strcmp(path, kernels_path) != 0) {
        kernels = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        snprintf(kernels_path, sizeof kernels_path, "%s", path);
        *(void **)&emulator_error = kernels != NULL ? dlsym(kernels, "emulator_error") : NULL;
        *(void **)&emulator_memory = kernels != NULL ? dlsym(kernels, "emulator_memory") : NULL;
        *(void **)&emulator_forget = kernels != NULL ? dlsym(kernels, "emulator_forget") : NULL;
    }
    return kernels;
}

static void free_operation(operation *op) { free(op->snapshot), free(op->values), free(op->sizes); }

void clear(queue *q) {
    for (size_t i = 0; i < q->count; i++) free_operation(&q->operations[i]);
    free(q->operations);
    *q = (queue){0};
}

static operation *append(queue *q) {
    if (q->count == q->capacity) {
        q->capacity = q->capacity > 0 ? 2 * q->capacity : 16;
        q->operations = realloc(q->operations, q->capacity * sizeof *q->operations);
    }
    return memset(&q->operations[q->count++], 0, sizeof *q->operations);
}

void *duplicate(const void *source, size_t bytes) {
    if (source == NULL) return NULL;
    void *made = malloc(bytes > 0 ? bytes : 1);
    return memcpy(made, source, bytes);
}

unsigned char *values_of(unsigned count) {
    unsigned char *made = aligned_alloc(VALUE, VALUE * ((size_t)count + 1));
    return memset(made, 0, VALUE * ((size_t)count + 1));
}

void append_copy(queue *q, const operation *op) {
    operation *made = append(q);
    *made = *op;
    made->snapshot = duplicate(op->snapshot, op->bytes);
    if (op->values != NULL) made->values = memcpy(values_of(op->count), op->values, VALUE * (size_t)op->count);
    made->sizes = duplicate(op->sizes, sizeof *op->sizes * op->count);
}

operation *put(object *stream, action action) {
    operation *op = append(stream->capture != NULL ? &stream->capture->queue : &stream->queue);
    op->action = action;
    return op;
}

/* Tells the emulator what there is, for it to find accesses outside it. */
static void show_memory(void) {
    for (const object *o = objects; o != NULL; o = o->next)
        if (o->kind == MEMORY || o->kind == PINNED) emulator_memory(o->start, o->bytes, kind_names[o->kind], 1);
}

int check_arguments(const operation *op) {
    for (unsigned i = 0; i < op->count; i++) {
        if (op->sizes[i] != sizeof(void *) && op->sizes[i] != sizeof(tensor_map)) continue;
        void *pointer;
        const size_t in_value = op->sizes[i] == sizeof(tensor_map) ? offsetof(tensor_map, address) : 0;
        memcpy(&pointer, op->values + VALUE * i + in_value, sizeof pointer);
        const object *found = find(pointer, 1);
        if (found != NULL && found->is_ahead)
            return complain(LAUNCH_FAILED, "%s: argument %u is not allocated yet: it is on another stream", op->name, i);
        if (found != NULL && found->kind == MEMORY && found->device != op->device)
            return complain(LAUNCH_FAILED, "%s: argument %u is in the memory of another GPU", op->name, i);
        if ((uintptr_t)pointer >> 32 == 0 || found != NULL) continue; /* none, or a number: memory is above */
        return complain(LAUNCH_FAILED, "%s: argument %u is no address of live memory", op->name, i);
    }
    return OK;
}

static int launch(const operation *op) {
    int result = check_arguments(op);
    if (result != OK) return result;
    void *arguments[op->count + 1];
    for (unsigned i = 0; i < op->count; i++) arguments[i] = op->values + VALUE * i;
    if (emulator_memory != NULL) show_memory();
    op->kernel(arguments, op->grid, op->block, op->shared);
    if (emulator_forget != NULL) emulator_forget();
    const char *error = emulator_error != NULL ? emulator_error() : NULL;
    return error == NULL ? OK : complain(LAUNCH_FAILED, "%s: %s", op->name, error);
}

static int perform(const operation *op) {
    switch (op->action) {
        case COPY:
            if (op->bytes > 0 && find(op->target, op->bytes) == NULL)
                return complain(LAUNCH_FAILED, "a copy of %zu bytes to memory that is gone", op->bytes);
            if (op->snapshot == NULL && op->bytes > 0 && find(op->source, op->bytes) == NULL)
                return complain(LAUNCH_FAILED, "a copy of %zu bytes from memory that is gone", op->bytes);
            memcpy(op->target, op->snapshot != NULL ? op->snapshot : op->source, op->bytes);
            return OK;
        case LAUNCH: return launch(op);
        case HOST: op->function(op->target); return OK;
        case WAIT: return is_live(op->stream, STREAM) ? drain(op->stream, op->position) : OK;
        case ALLOCATE: op->stream->is_ahead = false; return OK;
        case RELEASE: destroy(op->stream); return OK;
    }
    return OK;
}

int drain(object *stream, uint64_t position) {
    queue *q = &stream->queue;
    int result = OK;
    give_access(true);
    while (result == OK && q->before + q->done < position && q->done < q->count) {
        operation op = q->operations[q->done++]; /* a copy: the queue may move meanwhile */
        result = perform(&op);
    }
    give_access(false);
    if (q->done == q->count) {
        uint64_t before = q->before + q->count;
        clear(q);
        q->before = before;
    }
    return result;
}

int drain_all(object *stream) { return drain(stream, UINT64_MAX); }

uint64_t length(const object *stream) { return stream->queue.before + stream->queue.count; }

/* Memory of GPUs and of the host, and copies. */

#include "stand_in.h"

#include <sys/mman.h>

static int open_count; /* nested drains */

void give_access(bool access) {
    if (access ? open_count++ > 0 : --open_count > 0) return;
    for (const object *o = objects; o != NULL; o = o->next)
        if (o->kind == MEMORY) mprotect(o->start, o->mapped, access ? PROT_READ | PROT_WRITE : PROT_NONE);
}

/* New memory; null if there is none. */
static object *allocate(size_t bytes, object *context) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = (bytes + page - 1) / page * page + page; /* one more, never opened */
    if (mapped < bytes) return NULL;
    char *start = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return NULL;
    mprotect(start, mapped - page, PROT_READ | PROT_WRITE);
    memset(start, 0xff, bytes);
    mprotect(start, mapped, PROT_NONE);
    object *made = make(MEMORY, context);
    made->start = start;
    made->bytes = bytes;
    made->mapped = mapped - page;
    return made;
}

/* The memory that begins at an address; null if there is none. */
static object *memory_at(address memory) {
    object *found = find((void *)(uintptr_t)memory, 1);
    return found != NULL && found->kind == MEMORY && (address)(uintptr_t)found->start == memory ? found : NULL;
}

EXPORT int cuMemAlloc_v2(address *memory, size_t bytes) {
    CALL("cuMemAlloc_v2", " %zu", bytes);
    NEEDS_CONTEXT("cuMemAlloc_v2");
    NOT_WHILE_CAPTURING("cuMemAlloc_v2");
    if (bytes == 0) FAIL(INVALID_VALUE, "cuMemAlloc_v2: no bytes");
    object *made = allocate(bytes, context);
    if (made == NULL) return leave(2);
    *memory = (address)(uintptr_t)made->start;
    return leave(OK);
}

EXPORT int cuMemFree_v2(address memory) {
    enter();
    write_down("cuMemFree_v2");
    NEEDS_CONTEXT("cuMemFree_v2");
    NOT_WHILE_CAPTURING("cuMemFree_v2");
    object *found = memory_at(memory);
    if (found == NULL) FAIL(INVALID_VALUE, "cuMemFree_v2: no memory");
    for (object *o = objects; o != NULL; o = o->next) /* it waits for all that was begun */
        if (o->kind == STREAM && o->context == context) drain_all(o);
    destroy(found);
    return leave(count_call("cuMemFree_v2"));
}

EXPORT int cuMemAllocAsync(address *memory, size_t bytes, object *handle) {
    CALL("cuMemAllocAsync", " %zu", bytes);
    NEEDS_STREAM("cuMemAllocAsync");
    if (!machine.has_pools) FAIL(801, "cuMemAllocAsync: the GPU has no pools");
    if (bytes == 0 || stream->capture != NULL) FAIL(INVALID_VALUE, "cuMemAllocAsync: no bytes, or in a capture");
    object *made = allocate(bytes, context);
    if (made == NULL) return leave(2);
    made->is_ahead = true;
    put(stream, ALLOCATE)->stream = made;
    *memory = (address)(uintptr_t)made->start;
    return leave(OK);
}

EXPORT int cuMemFreeAsync(address memory, object *handle) {
    enter();
    write_down("cuMemFreeAsync");
    NEEDS_STREAM("cuMemFreeAsync");
    object *found = memory_at(memory);
    if (found == NULL || stream->capture != NULL) FAIL(INVALID_VALUE, "cuMemFreeAsync: no memory, or in a capture");
    put(stream, RELEASE)->stream = found;
    return leave(count_call("cuMemFreeAsync"));
}

EXPORT int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    CALL("cuMemHostAlloc", " %zu flags %u", bytes, flags);
    NEEDS_CONTEXT("cuMemHostAlloc");
    NOT_WHILE_CAPTURING("cuMemHostAlloc");
    if (bytes == 0) FAIL(INVALID_VALUE, "cuMemHostAlloc: no bytes");
    object *made = make(PINNED, context);
    if (posix_memalign(&made->start, 4096, bytes) != 0) return leave(2);
    memset(made->start, 0xff, bytes);
    made->bytes = bytes;
    *memory = made->start;
    return leave(OK);
}

EXPORT int cuMemFreeHost(void *memory) {
    enter();
    write_down("cuMemFreeHost");
    NEEDS_CONTEXT("cuMemFreeHost");
    object *found = find(memory, 1);
    if (found == NULL || found->kind != PINNED || found->start != memory) FAIL(INVALID_VALUE, "cuMemFreeHost: no memory");
    destroy(found);
    return leave(count_call("cuMemFreeHost"));
}

EXPORT int cuMemHostGetDevicePointer_v2(address *pointer, void *memory, unsigned flags) {
    CALL("cuMemHostGetDevicePointer_v2", " flags %u", flags);
    NEEDS_CONTEXT("cuMemHostGetDevicePointer_v2");
    object *found = find(memory, 1);
    if (found == NULL || found->kind != PINNED) FAIL(INVALID_VALUE, "cuMemHostGetDevicePointer_v2: no pinned memory");
    *pointer = (address)(uintptr_t)memory;
    return leave(OK);
}

EXPORT int cuPointerGetAttributes(unsigned count, int *attributes, void **values, address pointer) {
    CALL("cuPointerGetAttributes", " %u", count);
    NEEDS_CONTEXT("cuPointerGetAttributes");
    const object *found = find((void *)(uintptr_t)pointer, 1);
    for (unsigned i = 0; i < count; i++) switch (attributes[i]) {
            case 2: *(unsigned *)values[i] = found == NULL ? 0 : found->kind == MEMORY ? 2 : 1; break;
            case 8: *(unsigned *)values[i] = 0; break;
            case 9: *(int *)values[i] = found == NULL ? 0 : found->device; break;
            default: FAIL(INVALID_VALUE, "cuPointerGetAttributes: %d", attributes[i]);
        }
    return leave(OK);
}

EXPORT int cuMemcpyHtoD_v2(address target, const void *source, size_t bytes) {
    CALL("cuMemcpyHtoD_v2", " %zu", bytes);
    NEEDS_CONTEXT("cuMemcpyHtoD_v2");
    NOT_WHILE_CAPTURING("cuMemcpyHtoD_v2");
    if (find((void *)(uintptr_t)target, bytes) == NULL) FAIL(INVALID_VALUE, "cuMemcpyHtoD_v2: beyond memory");
    give_access(true);
    memcpy((void *)(uintptr_t)target, source, bytes);
    give_access(false);
    return leave(OK);
}

EXPORT int cuMemcpyDtoH_v2(void *target, address source, size_t bytes) {
    CALL("cuMemcpyDtoH_v2", " %zu", bytes);
    NEEDS_CONTEXT("cuMemcpyDtoH_v2");
    NOT_WHILE_CAPTURING("cuMemcpyDtoH_v2");
    if (find((void *)(uintptr_t)source, bytes) == NULL) FAIL(INVALID_VALUE, "cuMemcpyDtoH_v2: beyond memory");
    give_access(true);
    memcpy(target, (void *)(uintptr_t)source, bytes);
    give_access(false);
    return leave(OK);
}

EXPORT int cuMemcpyHtoDAsync_v2(address target, const void *source, size_t bytes, object *handle) {
    CALL("cuMemcpyHtoDAsync_v2", " %zu", bytes);
    NEEDS_STREAM("cuMemcpyHtoDAsync_v2");
    const object *pinned = find(source, bytes), *found = find((void *)(uintptr_t)target, bytes);
    if (found == NULL || found->kind != MEMORY) FAIL(INVALID_VALUE, "cuMemcpyHtoDAsync_v2: the target is no memory");
    if (pinned == NULL && stream->capture != NULL) {
        stream->capture_is_void = true;
        FAIL(CAPTURE_UNSUPPORTED, "cuMemcpyHtoDAsync_v2: memory that is not pinned in a capture");
    }
    operation *op = put(stream, COPY);
    op->target = (void *)(uintptr_t)target;
    op->source = source;
    op->bytes = bytes;
    if (pinned == NULL) op->snapshot = duplicate(source, bytes);
    return leave(OK);
}

EXPORT int cuMemcpyDtoHAsync_v2(void *target, address source, size_t bytes, object *handle) {
    CALL("cuMemcpyDtoHAsync_v2", " %zu", bytes);
    NEEDS_STREAM("cuMemcpyDtoHAsync_v2");
    const object *pinned = find(target, bytes), *found = find((void *)(uintptr_t)source, bytes);
    if (found == NULL || found->kind != MEMORY) FAIL(INVALID_VALUE, "cuMemcpyDtoHAsync_v2: the source is no memory");
    if (pinned != NULL) {
        operation *op = put(stream, COPY);
        op->target = target;
        op->source = (void *)(uintptr_t)source;
        op->bytes = bytes;
        return leave(OK);
    }
    if (stream->capture != NULL) {
        stream->capture_is_void = true;
        FAIL(CAPTURE_UNSUPPORTED, "cuMemcpyDtoHAsync_v2: memory that is not pinned in a capture");
    }
    int done = drain_all(stream);
    if (done != OK) return leave(done);
    give_access(true);
    memcpy(target, (void *)(uintptr_t)source, bytes);
    give_access(false);
    return leave(OK);
}

EXPORT int cuMemcpyDtoDAsync_v2(address target, address source, size_t bytes, object *handle) {
    CALL("cuMemcpyDtoDAsync_v2", " %zu", bytes);
    NEEDS_STREAM("cuMemcpyDtoDAsync_v2");
    const object *to = find((void *)(uintptr_t)target, bytes), *from = find((void *)(uintptr_t)source, bytes);
    if (to == NULL || from == NULL) FAIL(INVALID_VALUE, "cuMemcpyDtoDAsync_v2: beyond memory");
    if (to->device != context->device || from->device != context->device)
        FAIL(INVALID_VALUE, "cuMemcpyDtoDAsync_v2: memory of another GPU");
    operation *op = put(stream, COPY);
    op->target = (void *)(uintptr_t)target;
    op->source = (void *)(uintptr_t)source;
    op->bytes = bytes;
    return leave(OK);
}

/* Memory that begins at an address, in the memory of a context's GPU. */
static bool is_in(address start, size_t bytes, const object *context) {
    const object *found = find((void *)(uintptr_t)start, bytes);
    return found != NULL && found->kind == MEMORY && found->context == context;
}

EXPORT int cuMemcpyPeerAsync(address target, object *of_target, address source, object *of_source, size_t bytes, object *handle) {
    CALL("cuMemcpyPeerAsync", " %zu", bytes);
    NEEDS_STREAM("cuMemcpyPeerAsync");
    if (!is_live(of_target, CONTEXT) || !is_live(of_source, CONTEXT)) FAIL(INVALID_CONTEXT, "cuMemcpyPeerAsync: no context");
    if (!is_in(target, bytes, of_target) || !is_in(source, bytes, of_source))
        FAIL(INVALID_VALUE, "cuMemcpyPeerAsync: memory of another context, or beyond it");
    if (stream->capture != NULL) FAIL(CAPTURE_UNSUPPORTED, "cuMemcpyPeerAsync: in a capture, which the runtime leaves out");
    operation *op = put(stream, COPY);
    op->target = (void *)(uintptr_t)target;
    op->source = (void *)(uintptr_t)source;
    op->bytes = bytes;
    return leave(OK);
}

static int fill(object *stream, address target, const void *value, size_t width, size_t count) {
    if (target % width != 0 || find((void *)(uintptr_t)target, width * count) == NULL)
        return complain(INVALID_VALUE, "memory that is beyond the GPU's, or not aligned, is filled");
    operation *op = put(stream, COPY);
    op->target = (void *)(uintptr_t)target;
    op->bytes = width * count;
    op->snapshot = malloc(op->bytes + 1);
    for (size_t i = 0; i < count; i++) memcpy(op->snapshot + i * width, value, width);
    return OK;
}

EXPORT int cuMemsetD8Async(address target, unsigned char value, size_t count, object *handle) {
    CALL("cuMemsetD8Async", " %u %zu", value, count);
    NEEDS_STREAM("cuMemsetD8Async");
    return leave(fill(stream, target, &value, sizeof value, count));
}

EXPORT int cuMemsetD32Async(address target, unsigned value, size_t count, object *handle) {
    CALL("cuMemsetD32Async", " %u %zu", value, count);
    NEEDS_STREAM("cuMemsetD32Async");
    return leave(fill(stream, target, &value, sizeof value, count));
}

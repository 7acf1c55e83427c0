/* Streams, captures, events and graphs. */

#include "stand_in.h"

EXPORT int cuStreamCreate(object **stream, unsigned flags) {
    CALL("cuStreamCreate", " flags %u", flags);
    NEEDS_CONTEXT("cuStreamCreate");
    *stream = make(STREAM, context);
    return leave(OK);
}

EXPORT int cuStreamDestroy_v2(object *handle) {
    enter();
    write_down("cuStreamDestroy_v2");
    NEEDS_STREAM("cuStreamDestroy_v2");
    if (stream->capture != NULL) complain(OK, "cuStreamDestroy_v2: during a capture");
    drain_all(stream);
    destroy(stream);
    return leave(count_call("cuStreamDestroy_v2"));
}

EXPORT int cuStreamSynchronize(object *handle) {
    CALL("cuStreamSynchronize");
    NEEDS_STREAM("cuStreamSynchronize");
    if (stream->capture != NULL) {
        stream->capture_is_void = true;
        FAIL(CAPTURE_UNSUPPORTED, "cuStreamSynchronize: during a capture");
    }
    return leave(drain_all(stream));
}

EXPORT int cuStreamWaitEvent(object *handle, object *event, unsigned flags) {
    CALL("cuStreamWaitEvent", " flags %u", flags);
    NEEDS_STREAM("cuStreamWaitEvent");
    if (!is_live(event, EVENT)) FAIL(INVALID_HANDLE, "cuStreamWaitEvent: no event");
    if (stream->capture != NULL) FAIL(905, "cuStreamWaitEvent: an event from outside of the capture");
    if (event->recorded == NULL || event->recorded == stream) return leave(OK);
    operation *op = put(stream, WAIT);
    op->stream = event->recorded;
    op->position = event->position;
    return leave(OK);
}

EXPORT int cuStreamIsCapturing(object *handle, int *status) {
    CALL("cuStreamIsCapturing");
    NEEDS_STREAM("cuStreamIsCapturing");
    *status = stream->capture != NULL;
    return leave(OK);
}

EXPORT int cuStreamBeginCapture_v2(object *handle, int mode) {
    CALL("cuStreamBeginCapture_v2", " mode %d", mode);
    NEEDS_STREAM("cuStreamBeginCapture_v2");
    if ((uintptr_t)handle <= 2 || stream->capture != NULL) FAIL(ILLEGAL_STATE, "cuStreamBeginCapture_v2: not now");
    stream->capture = make(GRAPH, context);
    stream->capture_is_void = false;
    stream->capturer = pthread_self();
    return leave(OK);
}

EXPORT int cuStreamEndCapture(object *handle, object **graph) {
    enter();
    write_down("cuStreamEndCapture");
    NEEDS_STREAM("cuStreamEndCapture");
    if (stream->capture == NULL) FAIL(ILLEGAL_STATE, "cuStreamEndCapture: without a beginning");
    int result = stream->capture_is_void ? CAPTURE_INVALIDATED : count_call("cuStreamEndCapture");
    *graph = result == OK ? stream->capture : NULL;
    if (result != OK) destroy(stream->capture);
    stream->capture = NULL;
    return leave(result);
}

EXPORT int cuEventCreate(object **event, unsigned flags) {
    CALL("cuEventCreate", " flags %u", flags);
    NEEDS_CONTEXT("cuEventCreate");
    *event = make(EVENT, context);
    return leave(OK);
}

EXPORT int cuEventRecord(object *event, object *handle) {
    CALL("cuEventRecord");
    NEEDS_STREAM("cuEventRecord");
    if (!is_live(event, EVENT)) FAIL(INVALID_HANDLE, "cuEventRecord: no event");
    event->recorded = stream;
    event->position = length(stream);
    return leave(OK);
}

/* Of a GPU that takes as long for everything: a millisecond for each operation between the events. */
EXPORT int cuEventElapsedTime(float *milliseconds, object *begin, object *end) {
    CALL("cuEventElapsedTime");
    NEEDS_CONTEXT("cuEventElapsedTime");
    if (!is_live(begin, EVENT) || !is_live(end, EVENT) || begin->recorded == NULL || begin->recorded != end->recorded)
        FAIL(INVALID_HANDLE, "cuEventElapsedTime: events of no stream, or of two");
    *milliseconds = (float)(end->position - begin->position);
    return leave(OK);
}

EXPORT int cuEventQuery(object *event) {
    CALL("cuEventQuery");
    NEEDS_CONTEXT("cuEventQuery");
    if (!is_live(event, EVENT)) FAIL(INVALID_HANDLE, "cuEventQuery: no event");
    bool pending = event->recorded != NULL && is_live(event->recorded, STREAM);
    const queue *q = pending ? &event->recorded->queue : NULL;
    return leave(q != NULL && q->before + q->done < event->position ? NOT_READY : OK);
}

EXPORT int cuEventSynchronize(object *event) {
    CALL("cuEventSynchronize");
    NEEDS_CONTEXT("cuEventSynchronize");
    if (!is_live(event, EVENT)) FAIL(INVALID_HANDLE, "cuEventSynchronize: no event");
    bool pending = event->recorded != NULL && is_live(event->recorded, STREAM);
    return leave(pending ? drain(event->recorded, event->position) : OK);
}

EXPORT int cuGraphInstantiateWithFlags(object **runnable, object *graph, unsigned long long flags) {
    CALL("cuGraphInstantiateWithFlags", " %zu nodes, flags %llu", graph != NULL ? graph->queue.count : 0, flags);
    NEEDS_CONTEXT("cuGraphInstantiateWithFlags");
    if (!is_live(graph, GRAPH)) FAIL(INVALID_HANDLE, "cuGraphInstantiateWithFlags: no graph");
    *runnable = make(RUNNABLE, context);
    for (size_t i = 0; i < graph->queue.count; i++) append_copy(&(*runnable)->queue, &graph->queue.operations[i]);
    return leave(OK);
}

EXPORT int cuGraphLaunch(object *runnable, object *handle) {
    CALL("cuGraphLaunch", " %zu nodes", runnable != NULL ? runnable->queue.count : 0);
    NEEDS_STREAM("cuGraphLaunch");
    if (!is_live(runnable, RUNNABLE)) FAIL(INVALID_HANDLE, "cuGraphLaunch: no graph");
    for (size_t i = 0; i < runnable->queue.count; i++)
        append_copy(stream->capture != NULL ? &stream->capture->queue : &stream->queue, &runnable->queue.operations[i]);
    return leave(OK);
}

EXPORT int cuLaunchHostFunc(object *handle, void (*function)(void *), void *argument) {
    CALL("cuLaunchHostFunc");
    NEEDS_STREAM("cuLaunchHostFunc");
    operation *op = put(stream, HOST);
    op->function = function;
    op->target = argument;
    return leave(OK);
}

/* A function that frees an object of a kind, and fails after that if a test wants it to. */
#define DESTROYS(function, kind, text)                                            \
    EXPORT int function(object *what) {                                           \
        enter();                                                                  \
        write_down(#function);                                                    \
        NEEDS_CONTEXT(#function);                                                 \
        if (!is_live(what, kind)) FAIL(INVALID_HANDLE, #function ": no " text);  \
        destroy(what);                                                            \
        return leave(count_call(#function));                                      \
    }

DESTROYS(cuEventDestroy_v2, EVENT, "event")
DESTROYS(cuGraphDestroy, GRAPH, "graph")
DESTROYS(cuGraphExecDestroy, RUNNABLE, "graph")

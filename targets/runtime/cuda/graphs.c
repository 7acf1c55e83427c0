/* Runs as graphs. A graph holds the addresses that it was made with. Tensors in the host's memory and on other GPUs always travel
 * through the session's own, so that one graph serves all runs with them, and it is made at the first. Tensors in the GPU's memory
 * may be elsewhere in each run: a graph is made when the same locations are seen for the second time. A graph also holds
 * grids and sizes: where dimensions are open, it is made when the same sizes and locations are seen for the second time. */
#include <string.h>

#include "gpu_engine.h"
#include "model.h"

static bool same_locations(const nnefc_cuda_location *a, const nnefc_cuda_location *b) {
    for (uint32_t i = 0; i < nnefc_cuda_tensor_count(); i++)
        if (a[i].home != b[i].home || a[i].address != b[i].address) return false;
    return true;
}

#ifdef NNEFC_OPEN
static size_t size_bytes(void) { return nnefc_this_model.description.dimension_count * sizeof(int64_t); }
#endif

/* Whether a graph is for runs as the present one. */
static bool fits(const nnefc_engine *engine, const nnefc_cuda_graph *graph) {
#ifdef NNEFC_OPEN
    if (memcmp(graph->sizes, engine->sizes.values, size_bytes()) != 0) return false;
#endif
    return same_locations(graph->locations, engine->locations);
}

/* Whether runs as the present one may never come again: with other sizes, or with tensors of the GPU's elsewhere. */
static bool may_be_the_last(const nnefc_engine *engine) {
#ifdef NNEFC_OPEN
    (void)engine;
    return true;
#else
    for (uint32_t i = 0; i < nnefc_cuda_tensor_count(); i++)
        if (engine->locations[i].address != 0) return true;
    return false;
#endif
}

/* The graph of the present sizes and locations; null if there is none. */
static nnefc_cuda_graph *find(nnefc_engine *engine) {
    for (int i = 0; i < NNEFC_CUDA_GRAPHS; i++) {
        nnefc_cuda_graph *graph = &engine->graphs[i];
        if (graph->used > 0 && fits(engine, graph)) return graph;
    }
    return NULL;
}

/* The graph that was not used for longest. */
static nnefc_cuda_graph *oldest(nnefc_engine *engine) {
    nnefc_cuda_graph *found = &engine->graphs[0];
    for (int i = 1; i < NNEFC_CUDA_GRAPHS; i++)
        if (engine->graphs[i].used < found->used) found = &engine->graphs[i];
    return found;
}

/* Takes the present sizes and locations for a graph whose own were not seen for longest, unless it may be running still: nothing is
 * waited for. */
static nnefc_status replace(nnefc_engine *engine, nnefc_cuda_graph *graph, bool *is_replaced, char *error) {
    CUgraphExec old = graph->runnable;
    int over = old != NULL && graph->is_marked ? nnefc_cuda.event_query(graph->done) : CUDA_SUCCESS;
    *is_replaced = over == CUDA_SUCCESS;
    if (over == CUDA_ERROR_NOT_READY) return NNEFC_OK;
    if (over != CUDA_SUCCESS) return nnefc_cuda_check(over, "asking whether a run is over", error);
    graph->runnable = NULL;
    graph->used = 0;
    memcpy(graph->locations, engine->locations, nnefc_cuda_tensor_count() * sizeof *graph->locations);
#ifdef NNEFC_OPEN
    memcpy(graph->sizes, engine->sizes.values, size_bytes());
#endif
    return old != NULL ? nnefc_cuda_check(nnefc_cuda.runnable_destroy(old), "freeing a graph", error) : NNEFC_OK;
}

/* Makes the graph of the present sizes and locations, on the session's own stream. Nothing runs. */
static nnefc_status capture(nnefc_engine *engine, CUgraphExec *runnable, char *error) {
    CUgraph graph = NULL;
    int result = nnefc_cuda.capture_begin(engine->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (result != CUDA_SUCCESS) return nnefc_cuda_check(result, "beginning a graph", error);
    nnefc_status status = nnefc_cuda_put(engine, engine->stream, error);
    status = nnefc_cuda_also(status, nnefc_cuda.capture_end(engine->stream, &graph), "ending a graph", error);
    *runnable = NULL;
    if (status == NNEFC_OK)
        status = nnefc_cuda_check(nnefc_cuda.graph_instantiate(runnable, graph, 0), "making a graph runnable", error);
    if (graph != NULL) status = nnefc_cuda_also(status, nnefc_cuda.graph_destroy(graph), "freeing a graph", error);
    if (status == NNEFC_OK || *runnable == NULL) return status;
    nnefc_cuda.runnable_destroy(*runnable);
    *runnable = NULL;
    return status;
}

/* Whether the run may go on when the call has ended: those with tensors of the host's alone are waited for. */
static bool may_go_on(const nnefc_cuda_location *locations) {
    for (uint32_t i = 0; i < nnefc_cuda_tensor_count(); i++)
        if (locations[i].address != 0 || locations[i].on_peer != 0) return true;
    return false;
}

/* Starts a graph, and marks the end of its run where others may need to know of it. */
static nnefc_status launch(nnefc_engine *engine, nnefc_cuda_graph *graph, CUstream stream, char *error) {
    int result = nnefc_cuda.graph_launch(graph->runnable, stream);
    if (result != CUDA_SUCCESS) return nnefc_cuda_check(result, "starting a graph", error);
    graph->is_marked = may_go_on(engine->locations);
    if (!graph->is_marked) return NNEFC_OK;
    if (graph->done == NULL) result = nnefc_cuda.event_create(&graph->done, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = nnefc_cuda.event_record(graph->done, stream);
    if (result == CUDA_SUCCESS) return NNEFC_OK;
    nnefc_cuda.stream_synchronize(stream);
    graph->is_marked = false;
    return nnefc_cuda_check(result, "marking the end of a graph", error);
}

/* Puts the kernels of a run, and its copies but those of other GPUs, on a stream. */
static nnefc_status start(nnefc_engine *engine, CUstream stream, char *error) {
    if (!nnefc_cuda_this_module.capturable) return nnefc_cuda_put(engine, stream, error);
    nnefc_cuda_graph *graph = find(engine);
    bool is_known = graph != NULL, is_replaced = true;
    nnefc_status status = NNEFC_OK;
    if (!is_known) status = replace(engine, graph = oldest(engine), &is_replaced, error);
    if (status == NNEFC_OK && !is_replaced) return nnefc_cuda_put(engine, stream, error);
    if (status == NNEFC_OK && graph->runnable == NULL && (is_known || !may_be_the_last(engine)))
        status = capture(engine, &graph->runnable, error);
    if (status != NNEFC_OK) return status;
    graph->used = ++engine->runs;
    if (graph->runnable == NULL) return nnefc_cuda_put(engine, stream, error);
    return launch(engine, graph, stream, error);
}

/* Copies between the session's GPU and others are begun before and after a run's graph, which serves all addresses there. */
static nnefc_status copy_inputs_of_peers(nnefc_engine *engine, CUstream stream, char *error) {
    nnefc_status status = NNEFC_OK;
    for (uint32_t i = 0; i < description->input_count && status == NNEFC_OK; i++) {
        const nnefc_cuda_tensor *tensor = &engine->tensors[i];
        const nnefc_cuda_location *from = &engine->locations[i];
        if (from->home != NNEFC_CUDA_ON_PEER) continue;
        int result = nnefc_cuda.copy_between(tensor->memory, engine->device->context, from->on_peer, from->peer,
                                             (size_t)tensor->bytes, stream);
        status = nnefc_cuda_check(result, "copying an input from another GPU", error);
    }
    return status;
}

static nnefc_status copy_outputs_to_peers(nnefc_engine *engine, CUstream stream, char *error) {
    nnefc_status status = NNEFC_OK;
    for (uint32_t i = 0; i < description->output_count && status == NNEFC_OK; i++) {
        const nnefc_cuda_tensor *tensor = &engine->tensors[description->input_count + i];
        const nnefc_cuda_location *to = &engine->locations[description->input_count + i];
        size_t bytes = (size_t)nnefc_cuda_output_bytes(engine, i);
        if (to->home != NNEFC_CUDA_ON_PEER || bytes == 0) continue;
        int result = nnefc_cuda.copy_between(to->on_peer, to->peer, tensor->memory, engine->device->context, bytes, stream);
        status = nnefc_cuda_check(result, "copying an output to another GPU", error);
    }
    return status;
}

nnefc_status nnefc_cuda_start(nnefc_engine *engine, CUstream stream, char *error) {
    nnefc_status status = copy_inputs_of_peers(engine, stream, error);
    if (status == NNEFC_OK) status = start(engine, stream, error);
#ifdef NNEFC_OPEN
    if (status == NNEFC_OK) status = nnefc_cuda_put_results(engine, stream, error);
#endif
    return status == NNEFC_OK ? copy_outputs_to_peers(engine, stream, error) : status;
}

#ifdef NNEFC_OPEN
nnefc_status nnefc_cuda_drop_graphs(nnefc_engine *engine, nnefc_status status, char *error) {
    for (int i = 0; i < NNEFC_CUDA_GRAPHS; i++) {
        CUgraphExec old = engine->graphs[i].runnable;
        engine->graphs[i].runnable = NULL;
        engine->graphs[i].used = 0;
        if (old != NULL) status = nnefc_cuda_also(status, nnefc_cuda.runnable_destroy(old), "freeing a graph", error);
    }
    return status;
}
#endif

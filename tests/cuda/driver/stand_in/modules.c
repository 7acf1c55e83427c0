/* Modules, kernels, launches and tensor maps. */

#include "stand_in.h"

#include <dlfcn.h>

EXPORT int cuModuleLoadData(object **module, const void *image) {
    CALL("cuModuleLoadData");
    NEEDS_CONTEXT("cuModuleLoadData");
    NOT_WHILE_CAPTURING("cuModuleLoadData");
    if (image == NULL || (uintptr_t)image % 8 != 0) FAIL(INVALID_IMAGE, "cuModuleLoadData: an image that is not aligned");
    *module = make(MODULE, context);
    return leave(OK);
}

EXPORT int cuModuleUnload(object *module) {
    enter();
    write_down("cuModuleUnload");
    NEEDS_CONTEXT("cuModuleUnload");
    if (!is_live(module, MODULE)) FAIL(INVALID_HANDLE, "cuModuleUnload: no module");
    for (object *o = objects, *next; o != NULL; o = next) {
        next = o->next;
        if (o->kind == FUNCTION && o->start == module) destroy(o);
    }
    destroy(module);
    return leave(count_call("cuModuleUnload"));
}

EXPORT int cuModuleGetFunction(object **function, object *module, const char *name) {
    CALL("cuModuleGetFunction", " %s", name);
    NEEDS_CONTEXT("cuModuleGetFunction");
    if (!is_live(module, MODULE)) FAIL(INVALID_HANDLE, "cuModuleGetFunction: no module");
    void *library = open_kernels();
    if (library == NULL) FAIL(NOT_FOUND, "NNEFC_EMULATED_KERNELS names no library: %s", dlerror());
    char symbol[4096], table[4096];
    snprintf(symbol, sizeof symbol, "emulated_%s", name);
    snprintf(table, sizeof table, "emulated_%s_parameters", name);
    void *kernel = dlsym(library, symbol), *parameters = dlsym(library, table);
    if (kernel == NULL || parameters == NULL) FAIL(NOT_FOUND, "%s has no %s with its parameters", getenv("NNEFC_EMULATED_KERNELS"), symbol);
    object *made = make(FUNCTION, context);
    *(void **)&made->kernel = kernel;
    made->parameters = parameters;
    made->start = module;
    made->shared_limit = SHARED_BYTES;
    snprintf(made->name, sizeof made->name, "%s", name);
    *function = made;
    return leave(OK);
}

EXPORT int cuFuncSetAttribute(object *function, int attribute, int value) {
    CALL("cuFuncSetAttribute", " %d to %d", attribute, value);
    NEEDS_CONTEXT("cuFuncSetAttribute");
    if (!is_live(function, FUNCTION)) FAIL(INVALID_HANDLE, "cuFuncSetAttribute: no function");
    if (attribute != 8 || value < 0 || value > OPT_IN_BYTES) FAIL(INVALID_VALUE, "cuFuncSetAttribute: %d to %d", attribute, value);
    function->shared_limit = (unsigned)value;
    return leave(OK);
}

EXPORT int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *begin, const uint64_t *sizes, const uint64_t *strides,
                                  const uint32_t *box, const uint32_t *element_strides, int interleave, int swizzle, int promotion,
                                  int fill) {
    CALL("cuTensorMapEncodeTiled");
    NEEDS_DRIVER("cuTensorMapEncodeTiled");
    tensor_map made = {0x6e6e656663626f78u, (uintptr_t)begin, {0}, {0}, {0}, rank, type == 0 ? 1 : type == 4 ? 8 : type == 11 ? 4 : 2, 1u << swizzle, {0}, {0}};
    if ((uintptr_t)map % 64 != 0 || (uintptr_t)begin % 16 != 0 || rank < 3 || rank > 5 || (type != 0 && type != 1 && type != 4 && type != 11) || interleave != 0 ||
        swizzle < 0 || swizzle > 3 || promotion < 0 || promotion > 3 || fill != 0 || (swizzle != 0 && box[0] * made.element_bytes > 16u << swizzle) ||
        box[0] * made.element_bytes % 16 != 0)
        FAIL(INVALID_VALUE, "cuTensorMapEncodeTiled: what no tensor map has");
    for (uint32_t i = 0; i < rank; i++) {
        if (sizes[i] == 0 || sizes[i] >> 32 != 0 || box[i] == 0 || box[i] > 256 || element_strides[i] == 0 ||
            element_strides[i] > (i == 0 ? 1 : 8))
            FAIL(INVALID_VALUE, "cuTensorMapEncodeTiled: sizes that no tensor map has");
        made.sizes[i] = (uint32_t)sizes[i], made.box[i] = (box[i] + element_strides[i] - 1) / element_strides[i];
        made.steps[i] = element_strides[i];
        if (i == 0) continue;
        if (strides[i - 1] == 0 || strides[i - 1] % 16 != 0 || strides[i - 1] >> 40 != 0)
            FAIL(INVALID_VALUE, "cuTensorMapEncodeTiled: strides that no tensor map has");
        const uint64_t inner = i == 1 ? (uint64_t)made.element_bytes : strides[i - 2];
        if (strides[i - 1] / inner < sizes[i - 1] || (i > 1 && strides[i - 1] % inner != 0))
            FAIL(INVALID_VALUE, "cuTensorMapEncodeTiled: a stride that does not include the dimension before it");
        made.strides[i - 1] = strides[i - 1];
    }
    memcpy(map, &made, sizeof made);
    return leave(OK);
}

static bool fits(const object *function, const unsigned *grid, const unsigned *block, unsigned shared) {
    return grid[0] > 0 && grid[1] > 0 && grid[2] > 0 && grid[0] <= 0x7fffffff && grid[1] <= 65535 && grid[2] <= 65535 &&
           block[0] > 0 && block[1] > 0 && block[2] > 0 && block[0] <= 1024 && block[1] <= 1024 && block[2] <= 64 &&
           (uint64_t)block[0] * block[1] * block[2] <= MAX_BLOCK_THREADS && shared <= function->shared_limit;
}

EXPORT int cuLaunchKernel(object *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared, object *handle, void **arguments, void **extra) {
    CALL("cuLaunchKernel", " %s grid %u %u %u block %u %u %u shared %u", is_live(function, FUNCTION) ? function->name : "?",
         grid_x, grid_y, grid_z, block_x, block_y, block_z, shared);
    NEEDS_STREAM("cuLaunchKernel");
    if (!is_live(function, FUNCTION) || extra != NULL) FAIL(INVALID_HANDLE, "cuLaunchKernel: no function");
    const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
    if (!fits(function, grid, block, shared)) FAIL(INVALID_VALUE, "%s: no legal geometry", function->name);
    operation *op = put(stream, LAUNCH);
    op->kernel = function->kernel;
    snprintf(op->name, sizeof op->name, "%s", function->name);
    memcpy(op->grid, grid, sizeof grid);
    memcpy(op->block, block, sizeof block);
    op->shared = shared;
    op->device = context->device;
    op->count = function->parameters[0];
    op->sizes = duplicate(function->parameters + 1, sizeof *op->sizes * op->count);
    op->values = values_of(op->count);
    for (unsigned i = 0; i < op->count; i++) memcpy(op->values + VALUE * i, arguments[i], op->sizes[i]);
    return leave(check_arguments(op));
}

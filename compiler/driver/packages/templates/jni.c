/* The methods of nnefc.@{name}.Network, for the virtual machine of Java: see Network.java. */
#include <stddef.h>
#include <stdint.h>

#include "nnefc.h"

extern const nnefc_description *@{name}_describe(void);
extern nnefc_status @{name}_create(const nnefc_options *options, nnefc_session **session);
extern nnefc_status @{name}_run(nnefc_session *session, const void *const *inputs, void *const *outputs);
extern nnefc_status @{name}_destroy(nnefc_session *session);
extern const char *@{name}_last_error(const nnefc_session *session);

/* Functions of the virtual machine, by their positions in its table (Java Native Interface, chapter 4). */
typedef void *object;
typedef void *const **environment;
enum { FIND_CLASS = 6, THROW_NEW = 14, GET_ARRAY_LENGTH = 171, GET_ELEMENT = 173, GET_DIRECT_ADDRESS = 230 };
#define CALL(environment, index, type) ((type)(*(environment))[index])

enum { MAX_TENSORS = 64 };

static void fail(environment java, const char *message) {
    object class = CALL(java, FIND_CLASS, object(*)(environment, const char *))(java, "java/lang/IllegalStateException");
    if (class != NULL) CALL(java, THROW_NEW, int32_t(*)(environment, object, const char *))(java, class, message);
}

/* The session as a number, with threads; 0 if there is none, and an exception is pending then. */
__attribute__((visibility("default"))) int64_t Java_nnefc_@{mangled}_Network_create(environment java, object class, int32_t threads);

int64_t Java_nnefc_@{mangled}_Network_create(environment java, object class, int32_t threads) {
    (void)class;
    nnefc_options options = {.struct_size = sizeof options, .threads = threads};
    nnefc_session *session = NULL;
    if (@{name}_create(&options, &session) == NNEFC_OK) return (int64_t)(intptr_t)session;
    fail(java, @{name}_last_error(NULL));
    return 0;
}

/* The size in bytes of an input or output that is float32; 0 of another one, -1 if there is none. */
__attribute__((visibility("default"))) int64_t Java_nnefc_@{mangled}_Network_bytes(environment java, object class, int32_t output, int32_t index);

int64_t Java_nnefc_@{mangled}_Network_bytes(environment java, object class, int32_t output, int32_t index) {
    (void)java, (void)class;
    const nnefc_description *network = @{name}_describe();
    uint32_t count = output ? network->output_count : network->input_count;
    if (index < 0 || (uint32_t)index >= count || index >= MAX_TENSORS) return -1;
    const nnefc_tensor *tensor = &(output ? network->outputs : network->inputs)[index];
    return tensor->type == NNEFC_FLOAT32 ? (int64_t)tensor->bytes : 0;
}

/* The addresses of an array of direct buffers. */
static void addresses(environment java, object buffers, void **found) {
    int32_t count = CALL(java, GET_ARRAY_LENGTH, int32_t(*)(environment, object))(java, buffers);
    for (int32_t i = 0; i < count && i < MAX_TENSORS; i++) {
        object buffer = CALL(java, GET_ELEMENT, object(*)(environment, object, int32_t))(java, buffers, i);
        found[i] = CALL(java, GET_DIRECT_ADDRESS, void *(*)(environment, object))(java, buffer);
    }
}

/* Runs the network on buffers that the class has made, of the sizes that `bytes` tells. */
__attribute__((visibility("default"))) void Java_nnefc_@{mangled}_Network_run(environment java, object class, int64_t session, object inputs, object outputs);

void Java_nnefc_@{mangled}_Network_run(environment java, object class, int64_t session, object inputs, object outputs) {
    (void)class;
    nnefc_session *own = (nnefc_session *)(intptr_t)session;
    void *arguments[MAX_TENSORS] = {0}, *results[MAX_TENSORS] = {0};
    addresses(java, inputs, arguments);
    addresses(java, outputs, results);
    if (@{name}_run(own, (const void *const *)arguments, results) != NNEFC_OK) fail(java, @{name}_last_error(own));
}

__attribute__((visibility("default"))) void Java_nnefc_@{mangled}_Network_destroy(environment java, object class, int64_t session);

void Java_nnefc_@{mangled}_Network_destroy(environment java, object class, int64_t session) {
    (void)java, (void)class;
    (void)@{name}_destroy((nnefc_session *)(intptr_t)session);
}

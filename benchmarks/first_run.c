/* Opens the library argv[1], makes a session of argv[2] threads and runs it once on inputs of small values: what a program
 * pays before its first result. Prints JSON, see first_run.h. Then it runs again, argv[3] times in all if that is given. */
#define _GNU_SOURCE
#include "first_run.h"

#include <dlfcn.h>

#include "nnefc.h"

int main(int argc, char **argv) {
    if (argc != 3 && argc != 4) return 2;
    start_measuring();
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
    const nnefc_description *(*describe)(void);
    nnefc_status (*create)(const nnefc_options *, nnefc_session **);
    nnefc_status (*run)(nnefc_session *, const void *const *, void *const *);
    *(void **)&describe = dlsym(library, "nnefc_describe");
    *(void **)&create = dlsym(library, "nnefc_create");
    *(void **)&run = dlsym(library, "nnefc_run");
    if (describe == NULL || create == NULL || run == NULL) return 1;
    nnefc_options options = {0};
    nnefc_session *session = NULL;
    options.struct_size = sizeof options;
    options.threads = atoi(argv[2]);
    if (create(&options, &session) != NNEFC_OK) return 1;
    session_is_there();

    const nnefc_description *network = describe();
    const void **inputs = calloc(network->input_count + 1, sizeof *inputs);
    void **outputs = calloc(network->output_count + 1, sizeof *outputs);
    if (inputs == NULL || outputs == NULL) return 1;
    for (uint32_t i = 0; i < network->input_count; i++) {
        void *data = calloc(network->inputs[i].bytes + 1, 1);
        if (data == NULL) return 1;
        if (network->inputs[i].type == NNEFC_FLOAT32) /* zeros are right for indices */
            fill_floats(data, network->inputs[i].bytes / sizeof(float));
        inputs[i] = data;
    }
    for (uint32_t i = 0; i < network->output_count; i++) outputs[i] = calloc(network->outputs[i].bytes + 1, 1);
    if (run(session, inputs, outputs) != NNEFC_OK) return 1;
    print_measured();
    for (int again = argc == 4 ? atoi(argv[3]) : 1; again > 1; again--)
        if (run(session, inputs, outputs) != NNEFC_OK) return 1;
    return 0;
}

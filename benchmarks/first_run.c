/* Opens the library argv[1], makes a session of argv[2] threads and runs it once on inputs of small values: what a program
 * pays before its first result. Prints JSON: milliseconds, of the clock and of the processors, until the session is there
 * and until the run is done; resident memory before and after, in bytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nnefc.h"

static double milliseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static long resident_bytes(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1) exit(1);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void fill(const nnefc_tensor *tensor, void *data) {
    if (tensor->type != NNEFC_FLOAT32) return; /* zeros are right for indices */
    for (uint64_t i = 0; i < tensor->bytes / sizeof(float); i++) ((float *)data)[i] = (float)(i % 97) / 97;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    long before = resident_bytes();
    double wall = milliseconds(CLOCK_MONOTONIC), processor = milliseconds(CLOCK_PROCESS_CPUTIME_ID);
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
    double made = milliseconds(CLOCK_MONOTONIC) - wall;
    const nnefc_description *network = describe();
    const void **inputs = calloc(network->input_count + 1, sizeof *inputs);
    void **outputs = calloc(network->output_count + 1, sizeof *outputs);
    if (inputs == NULL || outputs == NULL) return 1;
    for (uint32_t i = 0; i < network->input_count; i++) {
        void *data = calloc(network->inputs[i].bytes + 1, 1);
        if (data == NULL) return 1;
        fill(&network->inputs[i], data);
        inputs[i] = data;
    }
    for (uint32_t i = 0; i < network->output_count; i++) outputs[i] = calloc(network->outputs[i].bytes + 1, 1);
    if (run(session, inputs, outputs) != NNEFC_OK) return 1;
    printf("{\"create_ms\": %.3f, \"wall_ms\": %.3f, \"processor_ms\": %.3f, \"before_bytes\": %ld, \"after_bytes\": %ld}\n", made,
           milliseconds(CLOCK_MONOTONIC) - wall, milliseconds(CLOCK_PROCESS_CPUTIME_ID) - processor, before, resident_bytes());
    return 0;
}

/* Uses many libraries in one process. `open FILE…` opens all files, one after the other, and leaves them open; each then runs in
 * a session with two threads of its own and, at the same time, in one of another thread of the program. `reopen FILE COUNT`
 * opens a library, runs it and closes it so many times. Prints how many mappings of memory the process has then more than
 * after the first. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nnefc.h"

#define CHECK(condition) \
    if (!(condition)) fprintf(stderr, "line %d: %s\n", __LINE__, #condition), exit(1)

static nnefc_interface interface_of(void *library) {
    nnefc_interface network;
    memset(&network, 0, sizeof network);
    *(void **)&network.create = dlsym(library, "nnefc_create");
    *(void **)&network.run = dlsym(library, "nnefc_run");
    *(void **)&network.destroy = dlsym(library, "nnefc_destroy");
    *(void **)&network.last_error = dlsym(library, "nnefc_last_error");
    return network;
}

static void use(void *library, int threads) {
    nnefc_interface network = interface_of(library);
    nnefc_options options = {0};
    options.struct_size = sizeof options;
    options.threads = threads;
    nnefc_session *session = NULL;
    CHECK(network.create(&options, &session) == NNEFC_OK);
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    const void *inputs[] = {x};
    void *outputs[] = {y};
    for (int i = 0; i < 3; i++) CHECK(network.run(session, inputs, outputs) == NNEFC_OK && y[3] == -4);
    CHECK(network.run(session, NULL, outputs) == NNEFC_BAD_ARGUMENT);
    CHECK(network.create(&options, NULL) == NNEFC_BAD_ARGUMENT && strstr(network.last_error(NULL), "session is null"));
    CHECK(network.destroy(session) == NNEFC_OK);
}

static void *use_elsewhere(void *library) {
    use(library, 1);
    return NULL;
}

static void use_twice(void *library) {
    pthread_t other;
    CHECK(pthread_create(&other, NULL, use_elsewhere, library) == 0);
    use(library, 2);
    CHECK(pthread_join(other, NULL) == 0);
}

static int mappings(void) {
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file != NULL);
    int lines = 0;
    for (int letter; (letter = getc(file)) != EOF;) lines += letter == '\n';
    fclose(file);
    return lines;
}

static void *opened(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    return library;
}

int main(int argc, char **argv) {
    CHECK(argc > 2);
    if (strcmp(argv[1], "open") == 0) {
        for (int i = 2; i < argc; i++) use_twice(opened(argv[i]));
        return 0;
    }
    int before = 0;
    for (int i = 0, count = atoi(argv[3]); i < count; i++) {
        void *library = opened(argv[2]);
        use_twice(library);
        CHECK(dlclose(library) == 0);
        if (i == 0) before = mappings();
    }
    printf("%d\n", mappings() - before);
    return 0;
}

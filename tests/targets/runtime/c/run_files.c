/* Runs a network on inputs from files: run_files [LIBRARY] INPUT... OUTPUT...
 *
 * Inputs and outputs are the tensors' elements as they lie in memory. Built with OPEN_LIBRARY it opens the library by its
 * name, else it is linked with one, with dynamic sizes if built with DYNAMIC_SIZES.
 *
 * Of a network with dynamic sizes an input is FILE@2x3, with its shape, and the outputs' shapes are printed, a line each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nnefc.h"

#ifdef OPEN_LIBRARY
#ifdef _WIN32
#include <stdarg.h>
#include <windows.h>

/* Linked without MinGW's C library, as libraries are: what it has besides Windows' own. */
static int print(FILE *file, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = __stdio_common_vfprintf(0, file, format, NULL, arguments);
    va_end(arguments);
    return length;
}
#define fprintf print
#define printf(...) print(stdout, __VA_ARGS__)

int main(int argc, char **argv);
int __cdecl _configure_narrow_argv(int mode); /* 1: words as they are; what else programs get, MinGW would set up */

void __main(void) {} /* main calls it, for constructors of C++ */

void program_start(void) {
    _configure_narrow_argv(1);
    exit(main(*__p___argc(), *__p___argv()));
}

static void *dlopen(const char *path, int flags) {
    (void)flags;
    return LoadLibraryA(path);
}

static void *dlsym(void *opened, const char *name) { return (void *)GetProcAddress(opened, name); }

static const char *dlerror(void) {
    static char text[64];
    snprintf(text, sizeof text, "error %lu of Windows", GetLastError());
    return text;
}
enum { RTLD_NOW, RTLD_LOCAL };
#else
#include <dlfcn.h>
#endif

static void *library;

static void *symbol(const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return found;
}
#define nnefc_describe ((const nnefc_description *(*)(void))symbol("nnefc_describe"))
#define nnefc_create ((nnefc_status(*)(const nnefc_options *, nnefc_session **))symbol("nnefc_create"))
#define nnefc_run ((nnefc_status(*)(nnefc_session *, const void *const *, void *const *))symbol("nnefc_run"))
#define nnefc_destroy ((nnefc_status(*)(nnefc_session *))symbol("nnefc_destroy"))
#define nnefc_last_error ((const char *(*)(const nnefc_session *))symbol("nnefc_last_error"))
#define nnefc_run_sized \
    ((nnefc_status(*)(nnefc_session *, const nnefc_input *, nnefc_output *))symbol("nnefc_run_sized"))
#define DYNAMIC_SIZES
#endif

static void *memory_of(const nnefc_tensor *tensor) {
    void *memory = malloc(tensor->bytes > 0 ? (size_t)tensor->bytes : 1);
    if (memory == NULL) exit(3);
    return memory;
}

static FILE *opened(const char *path, const char *mode) {
    FILE *file = fopen(path, mode);
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    return file;
}

#ifdef DYNAMIC_SIZES
enum { MAX = 128, RANK = 16 }; /* inputs, outputs; dimensions of each */

/* An input of a network with dynamic sizes; `sizes` has room for its shape. */
static nnefc_input read_sized(char *word, const nnefc_tensor *tensor, int64_t *sizes) {
    char *shape = strrchr(word, '@');
    if (shape == NULL) exit(2);
    *shape = '\0';
    for (int32_t axis = 0; axis < tensor->rank; axis++) sizes[axis] = strtoll(shape + 1, &shape, 10);
    FILE *file = opened(word, "rb");
    fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    void *data = malloc(bytes + 1);
    if (data == NULL || fread(data, 1, bytes, file) != bytes) exit(3);
    fclose(file);
    return (nnefc_input){data, bytes, sizes};
}

static int run_sized(const nnefc_description *network, char **files) {
    static int64_t shapes[MAX][RANK];
    nnefc_input inputs[MAX];
    nnefc_output outputs[MAX] = {{0}};
    if (network->input_count > MAX || network->output_count > MAX) return 3;
    for (uint32_t i = 0; i < network->input_count; i++) inputs[i] = read_sized(*files++, &network->inputs[i], shapes[i]);
    nnefc_session *session = NULL;
    nnefc_status status = nnefc_create(NULL, &session);
    if (status == NNEFC_OK) status = nnefc_run_sized(session, inputs, outputs);
    if (status != NNEFC_OK) {
        fprintf(stderr, "status %d: %s\n", (int)status, nnefc_last_error(session));
        return 4;
    }
    for (uint32_t i = 0; i < network->output_count; i++) {
        FILE *file = opened(*files++, "wb");
        if (fwrite(outputs[i].data, 1, (size_t)outputs[i].bytes, file) != outputs[i].bytes) return 3;
        fclose(file);
        for (int32_t axis = 0; axis < network->outputs[i].rank; axis++) printf("%d ", (int)outputs[i].shape[axis]);
        puts("");
    }
    nnefc_destroy(session);
    return 0;
}
#endif

int main(int argc, char **argv) {
    int next = 1;
#ifdef OPEN_LIBRARY
    library = argc > 1 ? dlopen(argv[next++], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
#endif
    const nnefc_description *network = nnefc_describe();
    if (argc - next != (int)(network->input_count + network->output_count)) {
        fprintf(stderr, "the network has %u inputs and %u outputs\n", (unsigned)network->input_count,
                (unsigned)network->output_count);
        return 2;
    }
#ifdef DYNAMIC_SIZES
    if (network->abi_version == NNEFC_OPEN_ABI_VERSION) return run_sized(network, argv + next);
#endif
    const void **inputs = calloc(network->input_count + 1, sizeof *inputs);
    void **outputs = calloc(network->output_count + 1, sizeof *outputs);
    if (inputs == NULL || outputs == NULL) return 3;
    for (uint32_t i = 0; i < network->input_count; i++) {
        void *data = memory_of(&network->inputs[i]);
        FILE *file = opened(argv[next++], "rb");
        if (fread(data, 1, (size_t)network->inputs[i].bytes, file) != network->inputs[i].bytes) return 3;
        fclose(file);
        inputs[i] = data;
    }
    for (uint32_t i = 0; i < network->output_count; i++) outputs[i] = memory_of(&network->outputs[i]);

    nnefc_session *session = NULL;
    nnefc_status status = nnefc_create(NULL, &session);
    if (status == NNEFC_OK) status = nnefc_run(session, inputs, outputs);
    if (status != NNEFC_OK) {
        fprintf(stderr, "status %d: %s\n", (int)status, nnefc_last_error(session));
        return 4;
    }
    for (uint32_t i = 0; i < network->output_count; i++) {
        FILE *file = opened(argv[next++], "wb");
        if (fwrite(outputs[i], 1, (size_t)network->outputs[i].bytes, file) != network->outputs[i].bytes) return 3;
        fclose(file);
    }
    nnefc_destroy(session);
    return 0;
}

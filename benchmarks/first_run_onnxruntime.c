/* What first_run.c measures, for onnxruntime's own shared library and its C interface: argv[1] is the library, argv[2] the
 * model, argv[3] the number of threads, argv[4] how many runs, if not one. Prints the same JSON.
 *
 * The Python package carries the library without its header. The interface is a table of functions that only ever grows;
 * what is called here is named by its position in it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "first_run.h"

enum { VERSION = 17, FLOAT32 = 1, OPTIMIZE_ALL = 99, WARNING = 2 };
enum {
    GET_ERROR_MESSAGE = 2,
    CREATE_ENVIRONMENT = 3,
    CREATE_SESSION = 7,
    RUN = 9,
    CREATE_OPTIONS = 10,
    SET_OPTIMIZATION = 23,
    SET_INTRA_THREADS = 24,
    SET_INTER_THREADS = 25,
    INPUT_COUNT = 30,
    OUTPUT_COUNT = 31,
    INPUT_TYPE = 33,
    INPUT_NAME = 36,
    OUTPUT_NAME = 37,
    CREATE_TENSOR = 48,
    TENSOR_DATA = 51,
    TENSOR_INFO_OF_TYPE = 55,
    ELEMENT_TYPE = 60,
    RANK = 61,
    DIMENSIONS = 62,
    DEFAULT_ALLOCATOR = 78,
};
enum { MAX_PADDING = 16, MAX_RANK = 8 };

typedef void *(*function)();
typedef struct {
    const function *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
} api_base;

static const function *api;

static void check(void *status) {
    if (status == NULL) return;
    fprintf(stderr, "%s\n", ((const char *(*)(void *))api[GET_ERROR_MESSAGE])(status));
    exit(1);
}

static void *tensor_of(void *session, size_t index, void *allocator) {
    void *type, *value, *data;
    const void *info;
    int element;
    size_t rank, count = 1;
    int64_t shape[MAX_RANK];
    check(api[INPUT_TYPE](session, index, &type));
    check(api[TENSOR_INFO_OF_TYPE](type, &info));
    check(api[ELEMENT_TYPE](info, &element));
    check(api[RANK](info, &rank));
    if (rank > MAX_RANK) exit(1);
    check(api[DIMENSIONS](info, shape, rank));
    for (size_t i = 0; i < rank; i++) count *= (size_t)shape[i];
    check(api[CREATE_TENSOR](allocator, shape, rank, element, &value));
    check(api[TENSOR_DATA](value, &data));
    if (element == FLOAT32)
        fill_floats(data, count);
    else
        memset(data, 0, count * 4); /* zeros are right for indices */
    return value;
}

int main(int argc, char **argv) {
    if (argc != 4 && argc != 5) return 2;
    start_measuring();
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
    const api_base *(*base)(void);
    *(void **)&base = dlsym(library, "OrtGetApiBase");
    if (base == NULL || (api = base()->get_api(VERSION)) == NULL) return 1;

    void *environment, *options, *session, *allocator;
    int threads = atoi(argv[3]);
    check(api[CREATE_ENVIRONMENT](WARNING, "first_run", &environment));
    check(api[CREATE_OPTIONS](&options));
    check(api[SET_INTRA_THREADS](options, threads));
    check(api[SET_INTER_THREADS](options, 1));
    check(api[SET_OPTIMIZATION](options, OPTIMIZE_ALL));
    check(api[CREATE_SESSION](environment, argv[2], options, &session));
    session_is_there();

    size_t input_count, output_count;
    char *input_names[MAX_PADDING], *output_names[MAX_PADDING];
    void *inputs[MAX_PADDING], *outputs[MAX_PADDING] = {NULL};
    check(api[DEFAULT_ALLOCATOR](&allocator));
    check(api[INPUT_COUNT](session, &input_count));
    check(api[OUTPUT_COUNT](session, &output_count));
    if (input_count > MAX_PADDING || output_count > MAX_PADDING) return 1;
    for (size_t i = 0; i < input_count; i++) {
        check(api[INPUT_NAME](session, i, allocator, &input_names[i]));
        inputs[i] = tensor_of(session, i, allocator);
    }
    for (size_t i = 0; i < output_count; i++) check(api[OUTPUT_NAME](session, i, allocator, &output_names[i]));
    check(api[RUN](session, NULL, input_names, inputs, input_count, output_names, output_count, outputs));
    print_measured();
    for (int again = argc == 5 ? atoi(argv[4]) : 1; again > 1; again--)
        check(api[RUN](session, NULL, input_names, inputs, input_count, output_names, output_count, outputs));
    return 0;
}

/* A network for a GPU, written by hand as the compiler would: y = -(x * weights), count = number of runs since the start.
 *
 * x is float32[1024], y float32[1024], count int64[1], the state one int64; the constants are 1024 float32 and the state's
 * initial value. x[0] = -1 lets a kernel of the GPU fail, -2 one of the processor. With -DLOOPS the entry reads how many
 * iterations to run from x[1], so that it cannot be captured. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cuda.h"

enum { COUNT = 1024, SCALE = 0, STEP = 1 };

int32_t nnefc_kernel_error(const char *text);

static int32_t negate(void *const *operands, const int64_t *sizes) {
    (void)sizes;
    const float *x = operands[0], *first = operands[3];
    float *own = operands[1], *y = operands[2];
    for (int i = 0; i < COUNT; i++) own[i] = -x[i];
    memcpy(y, own, COUNT * sizeof *y);
    return *first == -2.0f ? nnefc_kernel_error("minus two on the processor") : 0;
}

static const nnefc_cuda_operand operands[] = {
    {COUNT * sizeof(float), NNEFC_CUDA_READ},
    {COUNT * sizeof(float), 0},
    {COUNT * sizeof(float), NNEFC_CUDA_WRITE},
    {sizeof(float), NNEFC_CUDA_READ}};

static const nnefc_cuda_host_kernel host_kernels[] = {{negate, operands, 4}};

static const uint64_t image[] = {0};
static const char *const kernels[] = {"scale", "step"};
static const uint32_t dynamic_shared[] = {65536, 0};
static const char *const messages[] = {"minus one on the GPU"};
static const uint32_t architectures[] = {80, 90};

#if defined(LOOPS)
enum { CAPTURABLE = 0 };
#else
enum { CAPTURABLE = 1 };
#endif

const nnefc_cuda_module nnefc_cuda_this_module = {
    .image = image,
    .bytes = sizeof image,
    .kernels = kernels,
    .kernel_count = 2,
    .dynamic_shared = dynamic_shared,
    .messages = messages,
    .message_count = 1,
    .host_kernels = host_kernels,
    .host_kernel_count = 1,
    .capturable = CAPTURABLE,
    .architectures = architectures,
    .architecture_count = 2,
};

static int32_t scale(const void *x, const void *weights, void *y) {
    static const uint32_t geometry[7] = {4, 1, 1, 256, 1, 1, 65536};
    void *arguments[] = {&x, &weights, &y};
    return nnefc_cuda_launch(SCALE, geometry, arguments);
}

static int32_t step(void *state, void *count, const void *x) {
    static const uint32_t geometry[7] = {1, 1, 1, 1, 1, 1, 0};
    int32_t *failure = nnefc_cuda_failure();
    const void *pace = (const float *)x + 2 * COUNT; /* what the count goes on by */
    void *arguments[] = {&state, &count, &x, &pace, &failure};
    return nnefc_cuda_launch(STEP, geometry, arguments);
}

int32_t nnefc_network(void *x, void *y, void *count, uint8_t *state, uint8_t *workspace, const uint8_t *constants);

int32_t nnefc_network(void *x, void *y, void *count, uint8_t *state, uint8_t *workspace, const uint8_t *constants) {
    nnefc_cuda_copy(workspace, x, COUNT * sizeof(float));
    for (int64_t pace = 0; pace <= 1; pace++) nnefc_cuda_count(workspace + 2 * COUNT * sizeof(float), pace);
    scale(workspace, constants, workspace + COUNT * sizeof(float));
    void *const steps[] = {workspace + COUNT * sizeof(float), workspace, y, workspace};
    nnefc_cuda_host_step(&host_kernels[0], steps);
#if defined(LOOPS)
    float loops_done = 0;
    nnefc_cuda_read(&loops_done, (float *)workspace + 1, sizeof loops_done);
    for (int i = 0; (float)i < loops_done && !nnefc_cuda_run_failed(); i++) step(state, count, workspace);
#else
    step(state, count, workspace);
#endif
    return 0;
}

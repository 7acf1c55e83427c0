/* Runs layers by the functions of CMSIS-NN, twice, and says what the second run took. `net.h` has the layers. */
#include "arm_nnfunctions.h"
#include "arm_nnsupportfunctions.h"
#include "board.h"
#include "counting.h"

static int8_t scratch[1 << 17] __attribute__((aligned(16)));
static int failed;

#define DIMS(n_, h_, w_, c_) (&(cmsis_nn_dims){.n = (n_), .h = (h_), .w = (w_), .c = (c_)})
#define TILE(h_, w_) {.w = (w_), .h = (h_)}
#define CLAMP {.min = -128, .max = 127}

static void context(cmsis_nn_context *made, int32_t bytes) {
    made->buf = scratch, made->size = bytes;
    failed |= bytes > (int32_t)sizeof scratch;
}

/* All have the zero point -128, as data after a ReLU has it. */
static void convolution(const int8_t *x, const cmsis_nn_dims *of_x, const int8_t *w, const cmsis_nn_dims *of_w, const int32_t *b,
                        int32_t *multiplier, int32_t *shift, int stride_h, int stride_w, int pad_h, int pad_w, int8_t *y,
                        const cmsis_nn_dims *of_y) {
    cmsis_nn_conv_params params = {128, -128, TILE(stride_h, stride_w), TILE(pad_h, pad_w), TILE(1, 1), CLAMP};
    cmsis_nn_per_channel_quant_params scales = {multiplier, shift};
    cmsis_nn_context made;
    context(&made, arm_convolve_wrapper_s8_get_buffer_size(&params, of_x, of_w, of_y));
    failed |= arm_convolve_wrapper_s8(&made, &params, &scales, of_x, x, of_w, w, DIMS(1, 1, 1, of_y->c), b, of_y, y) != 0;
}

static void depthwise(const int8_t *x, const cmsis_nn_dims *of_x, const int8_t *w, const cmsis_nn_dims *of_w, const int32_t *b,
                      int32_t *multiplier, int32_t *shift, int stride_h, int stride_w, int pad_h, int pad_w, int8_t *y,
                      const cmsis_nn_dims *of_y) {
    cmsis_nn_dw_conv_params params = {128, -128, 1, TILE(stride_h, stride_w), TILE(pad_h, pad_w), TILE(1, 1), CLAMP};
    cmsis_nn_per_channel_quant_params scales = {multiplier, shift};
    cmsis_nn_context made;
    context(&made, arm_depthwise_conv_wrapper_s8_get_buffer_size(&params, of_x, of_w, of_y));
    failed |= arm_depthwise_conv_wrapper_s8(&made, &params, &scales, of_x, x, of_w, w, DIMS(1, 1, 1, of_y->c), b, of_y, y) != 0;
}

/* `sums` of the rows of weights, which processors with vectors want, are made before the first run. */
static void dense(const int8_t *x, int inputs, const int8_t *w, const int32_t *b, int32_t *sums, int8_t *y, int outputs) {
    cmsis_nn_fc_params params = {128, 0, -128, CLAMP};
    cmsis_nn_per_tensor_quant_params scale = {1 << 30, -8};
    cmsis_nn_context made = {sums, arm_fully_connected_s8_get_buffer_size(DIMS(inputs, 1, 1, outputs))};
    failed |= arm_fully_connected_s8(&made, &params, &scale, DIMS(1, 1, 1, inputs), x, DIMS(inputs, 1, 1, outputs), w,
                                     DIMS(1, 1, 1, outputs), b, DIMS(1, 1, 1, outputs), y) != 0;
}

static void sums_of(const int8_t *w, const int32_t *b, int32_t *sums, int inputs, int outputs) {
    if (arm_fully_connected_s8_get_buffer_size(DIMS(inputs, 1, 1, outputs))) arm_vector_sum_s8(sums, inputs, outputs, w, 128, 0, b);
}

static void mean(const int8_t *x, int height, int width, int channels, int8_t *y) {
    cmsis_nn_pool_params params = {TILE(1, 1), TILE(0, 0), CLAMP};
    cmsis_nn_context made;
    context(&made, arm_avgpool_s8_get_buffer_size(1, channels));
    failed |= arm_avgpool_s8(&made, &params, DIMS(1, height, width, channels), x, DIMS(1, height, width, 1),
                             DIMS(1, 1, 1, channels), y) != 0;
}

static void sum(const int8_t *one, const int8_t *other, int8_t *y, int items) {
    failed |= arm_elementwise_add_s8(one, other, 128, 1 << 30, 0, 128, 1 << 30, 0, 20, y, -128, 1 << 30, -19, -128, 127, items) != 0;
}

#ifdef EMPTY
#define LAYERS
#define SUMS
#else
#include "net.h"
#endif

int main(void) {
    uint32_t counts[2];
    SUMS paint_stack();
    LAYERS counts[1] = used_stack();
    start_counting();
    LAYERS counts[0] = stop_counting();
    board_write(counts, sizeof counts);
    return failed;
}

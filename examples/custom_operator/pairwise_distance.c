/* What nnefc gives a function of ours: pointers to the operands, pointers to the results, then the numbers. Tensors are
   row-major without gaps. Anything but 0 makes the run fail. */
#include <math.h>

int32_t pairwise_distance(const float *a, const float *b, float *distances, int64_t n, int64_t m, int64_t k, double p) {
    if (!(p >= 1.0))
        return 1;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) {
            double sum = 0.0;
            for (int64_t l = 0; l < k; l++) {
                double difference = fabs((double)a[i * k + l] - b[j * k + l]);
                sum += p == 2.0 ? difference * difference : pow(difference, p);
            }
            distances[i * m + j] = (float)(p == 2.0 ? sqrt(sum) : pow(sum, 1.0 / p));
        }
    return 0;
}

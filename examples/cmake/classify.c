/* Classifies one image of a digit: 64 numbers from the standard input, dark is large. */
#include <stdio.h>

#include "digits.h"

int main(void) {
    float image[64], probability[10];
    for (int i = 0; i < 64; i++) {
        if (scanf("%f", &image[i]) != 1) {
            fprintf(stderr, "64 numbers are needed\n");
            return 2;
        }
    }
    const void *inputs[] = {image};
    void *outputs[] = {probability};
    nnefc_session *session = NULL;
    if (digits_create(NULL, &session) != NNEFC_OK || digits_run(session, inputs, outputs) != NNEFC_OK) {
        fprintf(stderr, "%s\n", digits_last_error(session));
        return 1;
    }
    int best = 0;
    for (int digit = 1; digit < 10; digit++) {
        if (probability[digit] > probability[best]) best = digit;
    }
    printf("%d\n", best);
    return digits_destroy(session) != NNEFC_OK;
}

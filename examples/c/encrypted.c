/* Runs a compiled network whose weights are encrypted, on zeros; OpenSSL decrypts them into memory.
 *
 *     ./encrypted model.weights key
 */
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nnefc.h"

enum { HEADER_BYTES = 4096, PREAMBLE_BYTES = 48, TAG_BYTES = 16, KEY_BYTES = 32, PART = 1 << 20 };

static int fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    return 1;
}

/* Begins a message: byte 11 of the nonce is 0 for the header's, and 1 for that of the weights. */
static int begin(EVP_CIPHER_CTX *cipher, const unsigned char *key, const unsigned char *header, unsigned char message) {
    unsigned char nonce[12];
    int done;
    memcpy(nonce, header + 32, 11);
    nonce[11] = message;
    return EVP_DecryptInit_ex(cipher, EVP_aes_256_gcm(), NULL, key, nonce) &&
           EVP_DecryptUpdate(cipher, NULL, &done, header, PREAMBLE_BYTES);
}

/* Whether all that was decrypted is what was encrypted. */
static int is_whole(EVP_CIPHER_CTX *cipher, const unsigned char *tag) {
    unsigned char nothing[16];
    int done;
    return EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, (void *)tag) &&
           EVP_DecryptFinal_ex(cipher, nothing, &done) > 0;
}

/* Decrypts a weights file into `weights`; the layout is in docs/ABI.md. */
static int decrypt(FILE *file, const unsigned char *key, unsigned char *weights, uint64_t bytes) {
    static unsigned char header[HEADER_BYTES], part[PART];
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    int failed = 0, done;
    if (cipher == NULL || fread(header, 1, HEADER_BYTES, file) != HEADER_BYTES || memcmp(header, "NNEFCWTS\3\0\0", 12) != 0)
        failed = fail("this is not an encrypted weights file");
    else if (!begin(cipher, key, header, 0) || !is_whole(cipher, header + 48))
        failed = fail("the weights were encrypted with another key");
    else if (!begin(cipher, key, header, 1))
        failed = fail("OpenSSL cannot decrypt here");
    for (uint64_t at = 0; !failed && at < bytes; at += (uint64_t)done) {
        size_t wanted = bytes - at < PART ? (size_t)(bytes - at) : PART;
        if (fread(part, 1, wanted, file) != wanted || !EVP_DecryptUpdate(cipher, weights + at, &done, part, (int)wanted))
            failed = fail("the weights are cut off");
    }
    if (!failed && !is_whole(cipher, header + 64)) failed = fail("the weights are damaged, or were changed");
    EVP_CIPHER_CTX_free(cipher);
    return failed;
}

/* Creates a session whose weights are in memory, and runs it once on zeros. */
static int run(const nnefc_description *network, const void *weights) {
    nnefc_options options = {0};
    options.struct_size = sizeof options;
    options.constants = weights;
    options.constant_bytes = network->constant_bytes;
    nnefc_session *session = NULL;
    const void **inputs = calloc(network->input_count + 1, sizeof *inputs);
    void **outputs = calloc(network->output_count + 1, sizeof *outputs);
    for (uint32_t i = 0; i < network->input_count; i++) inputs[i] = calloc(network->inputs[i].bytes + 1, 1);
    for (uint32_t i = 0; i < network->output_count; i++) outputs[i] = calloc(network->outputs[i].bytes + 1, 1);
    if (nnefc_create(&options, &session) != NNEFC_OK) return fail(nnefc_last_error(NULL));
    if (nnefc_run(session, inputs, outputs) != NNEFC_OK) return fail(nnefc_last_error(session));
    for (uint32_t i = 0; i < network->output_count; i++)
        if (network->outputs[i].type == NNEFC_FLOAT32 && network->outputs[i].bytes > 0)
            printf("%s[0] = %g\n", network->outputs[i].name, *(const float *)outputs[i]);
    for (uint32_t i = 0; i < network->input_count; i++) free((void *)inputs[i]);
    for (uint32_t i = 0; i < network->output_count; i++) free(outputs[i]);
    free(inputs);
    free(outputs);
    return nnefc_destroy(session) != NNEFC_OK;
}

int main(int argc, char **argv) {
    unsigned char key[KEY_BYTES];
    const nnefc_description *network = nnefc_describe();
    FILE *weights_file = argc == 3 ? fopen(argv[1], "rb") : NULL, *key_file = argc == 3 ? fopen(argv[2], "rb") : NULL;
    if (weights_file == NULL || key_file == NULL || fread(key, 1, KEY_BYTES, key_file) != KEY_BYTES)
        return fail("usage: encrypted FILE.weights KEY");
    fclose(key_file);
    /* full blocks of 64 bytes, at a multiple of 64, and one for OpenSSL */
    unsigned char *weights = aligned_alloc(64, (size_t)(network->constant_bytes / 64 + 2) * 64);
    int failed = weights == NULL ? fail("out of memory") : decrypt(weights_file, key, weights, network->constant_bytes);
    fclose(weights_file);
    if (!failed) failed = run(network, weights);
    free(weights);
    return failed;
}

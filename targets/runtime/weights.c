/* The file is a header of a page, then the constants, then zeros up to a multiple of 64 bytes:
 *
 *     0  "NNEFCWTS"
 *     8  uint32: version of this layout, 2        12  uint32: bytes before the constants, 4096
 *    16  uint64: bytes of the constants           24  uint64: their checksum, as checksum.h has it
 *    32  the network's name, UTF-8, cut to 255 bytes and followed by zeros
 *
 * Numbers are little-endian. Version 3 is an encrypted file, which nothing here can read: the loader decrypts it
 * (compiler/loader/encrypted_weights.py), and gives the constants in memory. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* MAP_POPULATE; on others the functions of POSIX are there without it */
#endif
#include "weights.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <dlfcn.h>
#endif

#include "checksum.h"
#include "log/log.h"
#include "model.h"

#ifndef MAP_POPULATE
#define MAP_POPULATE 0
#endif

enum { VERSION = 2, ENCRYPTED = 3, HEADER_BYTES = 4096, NAME_OFFSET = 32, NAME_BYTES = 256, BLOCK = 64, PATH_BYTES = 4096 };

#ifdef NNEFC_SMALL
__attribute__((format(printf, 3, 4))) static inline nnefc_status refuse(char *error, size_t error_bytes, const char *format,
                                                                        ...) {
    (void)error, (void)error_bytes, (void)format;
    return NNEFC_BAD_WEIGHTS;
}
#else
__attribute__((format(printf, 3, 4))) static nnefc_status refuse(char *error, size_t error_bytes, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, error_bytes, format, arguments);
    va_end(arguments);
    nnefc_log_message(NNEFC_LOG_ERROR, "%s", error);
    return NNEFC_BAD_WEIGHTS;
}
#endif

static const char magic[8] = {'N', 'N', 'E', 'F', 'C', 'W', 'T', 'S'};

/* The path of the file that this code was loaded from, in `path`; false if it is unknown. */
#if defined(__linux__)
static bool own_path(char *path) {
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == NULL) return false;
    const uintptr_t here = (uintptr_t)magic;
    char line[PATH_BYTES + 128];
    bool found = false;
    while (!found && fgets(line, sizeof line, maps) != NULL) {
        unsigned long long start, end;
        int written = 0;
        if (sscanf(line, "%llx-%llx %*s %*s %*s %*s %n", &start, &end, &written) < 2 || here < start || here >= end) continue;
        line[strcspn(line, "\n")] = '\0';
        found = written > 0 && line[written] == '/' && strlen(line + written) < PATH_BYTES;
        if (found) memcpy(path, line + written, strlen(line + written) + 1);
        break;
    }
    fclose(maps);
    return found;
}
#else
static bool own_path(char *path) {
    Dl_info information;
    if (dladdr(magic, &information) == 0 || strlen(information.dli_fname) >= PATH_BYTES) return false;
    memcpy(path, information.dli_fname, strlen(information.dli_fname) + 1);
    return true;
}
#endif

/* The path of the file called `name` in the folder of the library. */
static bool path_next_to(const char *name, char *path) {
    if (!own_path(path)) return false;
    size_t folder = (size_t)(strrchr(path, '/') + 1 - path), length = strlen(name) + 1;
    if (folder + length > PATH_BYTES) return false;
    memcpy(path + folder, name, length);
    return true;
}

static uint64_t little_endian(const uint8_t *bytes, int count) {
    uint64_t number = 0;
    for (int i = count; i-- > 0;) number = number << 8 | bytes[i];
    return number;
}

static nnefc_status check(const nnefc_weights *weights, const char *path, const nnefc_mapping *mapping, char *error,
                          size_t error_bytes) {
    const uint8_t *header = mapping->start;
    bool known = memcmp(header, magic, sizeof magic) == 0 && little_endian(header + 12, 4) == HEADER_BYTES;
    if (known && little_endian(header + 8, 4) == ENCRYPTED)
        return refuse(error, error_bytes, "%s is encrypted: decrypt it, and give what is in it in nnefc_options.constants", path);
    if (!known || little_endian(header + 8, 4) != VERSION)
        return refuse(error, error_bytes, "%s is not a weights file that this library knows", path);
    uint64_t bytes = little_endian(header + 16, 8), padded = (weights->bytes + BLOCK - 1) / BLOCK * BLOCK;
    if (bytes != weights->bytes || little_endian(header + 24, 8) != nnefc_this_model.checksum)
        return refuse(error, error_bytes, "%s belongs to another network or compilation, called \"%.*s\"", path, NAME_BYTES - 1,
                      (const char *)header + NAME_OFFSET);
    if (mapping->bytes != HEADER_BYTES + padded)
        return refuse(error, error_bytes, "%s is cut off: it has %llu bytes of %llu", path,
                      (unsigned long long)mapping->bytes, (unsigned long long)(HEADER_BYTES + padded));
    if (nnefc_checksum(mapping->constants, weights->bytes) != nnefc_this_model.checksum)
        return refuse(error, error_bytes, "%s is damaged: its checksum is wrong", path);
    return NNEFC_OK;
}

static nnefc_status map_file(const char *path, nnefc_mapping *mapping, char *error, size_t error_bytes) {
    /* without waiting: a pipe would have it wait for a writer */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return refuse(error, error_bytes, "%s cannot be read: %s", path, strerror(errno));
    struct stat status;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(file);
        return refuse(error, error_bytes, "%s is not a regular file", path);
    }
    if (status.st_size < HEADER_BYTES || (uint64_t)status.st_size > SIZE_MAX / 2) {
        close(file);
        return refuse(error, error_bytes, "%s is cut off: it has %lld bytes", path, (long long)status.st_size);
    }
    void *start = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    int reason = errno;
    close(file);
    if (start == MAP_FAILED) {
        refuse(error, error_bytes, "%s cannot be mapped: %s", path, strerror(reason));
        return reason == ENOMEM ? NNEFC_OUT_OF_MEMORY : NNEFC_BAD_WEIGHTS;
    }
    mapping->start = start;
    mapping->bytes = (size_t)status.st_size;
    mapping->constants = (const uint8_t *)start + HEADER_BYTES;
    return NNEFC_OK;
}

/* Takes what the caller has in memory. */
static nnefc_status take_given(const nnefc_weights *weights, const nnefc_options *options, nnefc_mapping *mapping, char *error,
                         size_t error_bytes) {
    if ((uintptr_t)options->constants % BLOCK != 0) {
        refuse(error, error_bytes, "nnefc_options.constants is not aligned to %d bytes", (int)BLOCK);
        return NNEFC_BAD_ARGUMENT;
    }
    if (options->constant_bytes != weights->bytes)
        return refuse(error, error_bytes, "nnefc_options.constant_bytes is %llu, but the network has %llu",
                      (unsigned long long)options->constant_bytes, (unsigned long long)weights->bytes);
    if (nnefc_checksum(options->constants, weights->bytes) != nnefc_this_model.checksum)
        return refuse(error, error_bytes, "what is in nnefc_options.constants is damaged, or belongs to another network");
    mapping->constants = options->constants;
    return NNEFC_OK;
}

nnefc_status nnefc_weights_map(const nnefc_weights *weights, const nnefc_options *options, nnefc_mapping *mapping, char *error,
                               size_t error_bytes) {
    if (options->constants != NULL) return take_given(weights, options, mapping, error, error_bytes);
    const char *path = options->weights;
    char adjacent[PATH_BYTES];
    if (path == NULL) {
        if (!path_next_to(weights->name, adjacent))
            return refuse(error, error_bytes, "the folder of %s is unknown: give its path in nnefc_options.weights",
                          weights->name);
        path = adjacent;
    }
    nnefc_status status = map_file(path, mapping, error, error_bytes);
    if (status == NNEFC_OK) status = check(weights, path, mapping, error, error_bytes);
    if (status != NNEFC_OK) nnefc_weights_unmap(mapping);
    if (status == NNEFC_OK) nnefc_log_message(NNEFC_LOG_INFO, "trained values are mapped from %.400s", path);
    return status;
}

void nnefc_weights_unmap(nnefc_mapping *mapping) {
    if (mapping->start != NULL) munmap(mapping->start, mapping->bytes);
    *mapping = (nnefc_mapping){0};
}

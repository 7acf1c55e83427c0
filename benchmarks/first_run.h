/* What a program pays before its first result: milliseconds, of the clock and of the processors, until a session is there
 * and until its first run is done; resident memory before and after in bytes, and how much of it is no page of a file. */
#ifndef FIRST_RUN_H
#define FIRST_RUN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    double wall, processor, session;
    long resident, anonymous;
} measured;

static double milliseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

/* A line of /proc/self/status, in bytes. */
static long status_bytes(const char *name) {
    char line[256];
    long kilobytes = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && kilobytes < 0 && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0) kilobytes = atol(line + strlen(name) + 1);
    if (kilobytes < 0) exit(1);
    fclose(file);
    return 1024 * kilobytes;
}

static void start_measuring(void) {
    measured.resident = status_bytes("VmRSS");
    measured.anonymous = status_bytes("RssAnon");
    measured.wall = milliseconds(CLOCK_MONOTONIC);
    measured.processor = milliseconds(CLOCK_PROCESS_CPUTIME_ID);
}

static void session_is_there(void) { measured.session = milliseconds(CLOCK_MONOTONIC) - measured.wall; }

static void print_measured(void) {
    double wall = milliseconds(CLOCK_MONOTONIC) - measured.wall;
    double processor = milliseconds(CLOCK_PROCESS_CPUTIME_ID) - measured.processor;
    printf("{\"create_ms\": %.3f, \"wall_ms\": %.3f, \"processor_ms\": %.3f, \"resident_bytes\": %ld, \"anonymous_bytes\": %ld}\n",
           measured.session, wall, processor, status_bytes("VmRSS") - measured.resident,
           status_bytes("RssAnon") - measured.anonymous);
}

static void fill_floats(float *data, size_t count) {
    for (size_t i = 0; i < count; i++) data[i] = (float)(i % 97) / 97;
}

#endif

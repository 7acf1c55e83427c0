/* Converts numbers to strings and back, independent of the process's locale. */
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/text.h"

enum { LONGEST = 400 }; /* characters of a number */

static nnefc_text text_of(const char *data, size_t size) {
    nnefc_sized_text *made = nnefc_text_new(size);
    if (made == NULL) return 0;
    memcpy(made->data, data, size);
    return nnefc_text_of_sized(made);
}

/* The locale's decimal point, one character or several. */
static const char *decimal_point(void) {
    const struct lconv *locale = localeconv();
    return locale != NULL && locale->decimal_point[0] != '\0' ? locale->decimal_point : ".";
}

static nnefc_text text_of_double(double value) {
    if (isnan(value)) return text_of("NaN", 3);
    if (isinf(value)) return value > 0 ? text_of("INF", 3) : text_of("-INF", 4);
    char text[64];
    size_t size = (size_t)snprintf(text, sizeof text, "%.8g", value);
    const char *point = decimal_point();
    char *at = strcmp(point, ".") != 0 ? strstr(text, point) : NULL;
    if (at != NULL) {
        size_t more = strlen(point) - 1;
        *at = '.';
        memmove(at + 1, at + 1 + more, size - (size_t)(at - text) - more);
        size -= more;
    }
    return text_of(text, size);
}

int32_t nnefc_text_of_doubles(const double *values, nnefc_text *texts, int64_t count);
int32_t nnefc_text_of_integers(const int64_t *values, nnefc_text *texts, int64_t count, int64_t is_unsigned);
int32_t nnefc_text_to_doubles(const nnefc_text *texts, double *values, int64_t count);
int32_t nnefc_text_to_floats(const nnefc_text *texts, float *values, int64_t count);
int32_t nnefc_text_to_integers(const nnefc_text *texts, int64_t *values, int64_t count, int64_t minimum, int64_t maximum,
                               int64_t is_unsigned);

/* Each number with up to 8 significant digits: "0.1", "1e+10", "NaN", "INF". */
int32_t nnefc_text_of_doubles(const double *values, nnefc_text *texts, int64_t count) {
    for (int64_t i = 0; i < count; i++) texts[i] = text_of_double(values[i]);
    return 0;
}

int32_t nnefc_text_of_integers(const int64_t *values, nnefc_text *texts, int64_t count, int64_t is_unsigned) {
    for (int64_t i = 0; i < count; i++) {
        char text[32];
        int size = is_unsigned ? snprintf(text, sizeof text, "%" PRIu64, (uint64_t)values[i])
                               : snprintf(text, sizeof text, "%" PRId64, values[i]);
        texts[i] = text_of(text, (size_t)size);
    }
    return 0;
}

static bool is_white(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Copies a text without white space around it, terminated, with `point` in place of a decimal point; false if it is too long,
 * or has characters that no decimal number has. `*is_whole` tells whether it has digits and a sign alone. */
static bool read(nnefc_text text, const char *point, char *into, bool *is_whole) {
    nnefc_string bytes = nnefc_text_bytes(text);
    while (bytes.size > 0 && is_white(bytes.data[0])) bytes.data++, bytes.size--;
    while (bytes.size > 0 && is_white(bytes.data[bytes.size - 1])) bytes.size--;
    size_t size = 0, width = strlen(point);
    *is_whole = true;
    for (size_t i = 0; i < bytes.size; i++) {
        char c = bytes.data[i];
        bool is_digit = c >= '0' && c <= '9', is_sign = c == '+' || c == '-';
        *is_whole = *is_whole && (is_digit || (is_sign && i == 0));
        if ((!is_digit && !is_sign && strchr(".eEiInNfFaAtTyY", c) == NULL) || c == '\0' || size + width >= LONGEST) return false;
        if (c == '.')
            memcpy(into + size, point, width), size += width;
        else
            into[size++] = c;
    }
    into[size] = '\0';
    return size > 0;
}

/* Lets the run fail; returns 0. */
static int refuse(nnefc_text text, const char *reason) {
    nnefc_string bytes = nnefc_text_bytes(text);
    char message[160];
    snprintf(message, sizeof message, "Cast: '%.*s' %s", (int)(bytes.size < 40 ? bytes.size : 40),
             bytes.data != NULL ? bytes.data : "", reason);
    nnefc_kernel_error(message);
    return 0;
}

static double to_double(nnefc_text text, const char *point) {
    char copy[LONGEST + 1], *end = copy;
    bool is_whole;
    double value = read(text, point, copy, &is_whole) ? strtod(copy, &end) : 0;
    return end != copy && *end == '\0' ? value : refuse(text, "is not a number");
}

int32_t nnefc_text_to_doubles(const nnefc_text *texts, double *values, int64_t count) {
    bool failed = nnefc_run_failed();
    const char *point = decimal_point();
    for (int64_t i = 0; i < count; i++) values[i] = failed ? 0 : to_double(texts[i], point);
    return 0;
}

/* Rounded once, to float. */
int32_t nnefc_text_to_floats(const nnefc_text *texts, float *values, int64_t count) {
    bool failed = nnefc_run_failed();
    const char *point = decimal_point();
    for (int64_t i = 0; i < count; i++) {
        char copy[LONGEST + 1], *end = copy;
        bool is_whole;
        values[i] = !failed && read(texts[i], point, copy, &is_whole) ? strtof(copy, &end) : 0;
        if (!failed && (end == copy || *end != '\0')) values[i] = (float)refuse(texts[i], "is not a number");
    }
    return 0;
}

static int64_t to_integer(nnefc_text text, const char *point, int64_t minimum, int64_t maximum, bool is_unsigned) {
    char copy[LONGEST + 1], *end = copy;
    bool is_whole;
    if (!read(text, point, copy, &is_whole)) return refuse(text, "is not a number");
    errno = 0;
    if (is_whole && is_unsigned && copy[0] != '-') {
        uint64_t value = strtoull(copy, &end, 10);
        if (end != copy && *end == '\0') return errno == 0 ? (int64_t)value : refuse(text, "is out of the range of its type");
    } else if (is_whole) {
        int64_t value = strtoll(copy, &end, 10);
        if (end != copy && *end == '\0')
            return errno == 0 && value >= minimum && value <= maximum ? value : refuse(text, "is out of the range of its type");
    }
    double value = trunc(to_double(text, point));
    if (value >= (double)minimum && value <= (double)maximum && value < 9223372036854775808.0) return (int64_t)value;
    return refuse(text, "is out of the range of its type");
}

/* Whole numbers in a range; others are rounded towards zero. Unsigned ones may also be those of uint64. */
int32_t nnefc_text_to_integers(const nnefc_text *texts, int64_t *values, int64_t count, int64_t minimum, int64_t maximum,
                               int64_t is_unsigned) {
    bool failed = nnefc_run_failed();
    const char *point = decimal_point();
    for (int64_t i = 0; i < count; i++)
        values[i] = failed ? 0 : to_integer(texts[i], point, minimum, maximum, is_unsigned != 0);
    return 0;
}

/* Arithmetic, and numbers as text. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/values.h"

enum { MAX_DIGITS = 400, SHORTEST = 17 };
#define EXACT (INT64_C(1) << 53) /* integers up to it are floats */

static nnefc_value too_large(nnefc_renderer *renderer) { return nnefc_chat_fail(renderer, "an integer is beyond 64 bits"); }

static bool multiply(int64_t first, int64_t second, int64_t *product) { return !__builtin_mul_overflow(first, second, product); }

static nnefc_value floor_divide(nnefc_renderer *renderer, nnefc_opcode operation, int64_t first, int64_t second) {
    if (second == 0) return nnefc_chat_fail(renderer, "division by zero");
    if (second == -1) return first == INT64_MIN ? too_large(renderer) : nnefc_integer(operation == NNEFC_OP_MODULO ? 0 : -first);
    int64_t quotient = first / second, left = first % second;
    if (left != 0 && (left < 0) != (second < 0)) quotient--, left += second;
    return nnefc_integer(operation == NNEFC_OP_MODULO ? left : quotient);
}

static nnefc_value power(nnefc_renderer *renderer, int64_t base, int64_t exponent) {
    if (exponent < 0) return nnefc_chat_fail(renderer, "negative exponents are not supported");
    int64_t made = 1;
    bool fits = true;
    for (; exponent > 0 && fits; exponent /= 2) {
        if (exponent % 2 == 1) fits = multiply(made, base, &made);
        if (exponent > 1 && fits) fits = multiply(base, base, &base);
    }
    return fits ? nnefc_integer(made) : too_large(renderer);
}

static nnefc_value of_integers(nnefc_renderer *renderer, nnefc_opcode operation, int64_t first, int64_t second) {
    int64_t made = 0;
    bool fits = true;
    switch (operation) {
    case NNEFC_OP_ADD:
        fits = !__builtin_add_overflow(first, second, &made);
        break;
    case NNEFC_OP_SUBTRACT:
        fits = !__builtin_sub_overflow(first, second, &made);
        break;
    case NNEFC_OP_MULTIPLY:
        fits = multiply(first, second, &made);
        break;
    case NNEFC_OP_DIVIDE:
        if (second == 0) return nnefc_chat_fail(renderer, "division by zero");
        if (first > EXACT || first < -EXACT || second > EXACT || second < -EXACT) return too_large(renderer);
        return nnefc_float((double)first / (double)second);
    case NNEFC_OP_POWER:
        return power(renderer, first, second);
    default:
        return floor_divide(renderer, operation, first, second);
    }
    return fits ? nnefc_integer(made) : too_large(renderer);
}

/* The quotient rounded down, or what is left of it, which has the divisor's sign: as Python computes them. */
static nnefc_value floor_divide_floats(nnefc_opcode operation, double first, double second) {
    double left = fmod(first, second), quotient = (first - left) / second;
    if (left == 0)
        left = copysign(0, second);
    else if ((second < 0) != (left < 0))
        left += second, quotient -= 1;
    if (operation == NNEFC_OP_MODULO) return nnefc_float(left);
    if (quotient == 0) return nnefc_float(copysign(0, first / second));
    double whole = floor(quotient);
    return nnefc_float(quotient - whole > 0.5 ? whole + 1 : whole);
}

static nnefc_value of_floats(nnefc_renderer *renderer, nnefc_opcode operation, double first, double second) {
    bool divides = operation == NNEFC_OP_DIVIDE || operation == NNEFC_OP_FLOOR_DIVIDE || operation == NNEFC_OP_MODULO;
    if (divides && second == 0) return nnefc_chat_fail(renderer, "division by zero");
    switch (operation) {
    case NNEFC_OP_ADD:
        return nnefc_float(first + second);
    case NNEFC_OP_SUBTRACT:
        return nnefc_float(first - second);
    case NNEFC_OP_MULTIPLY:
        return nnefc_float(first * second);
    case NNEFC_OP_DIVIDE:
        return nnefc_float(first / second);
    case NNEFC_OP_POWER:
        return nnefc_chat_fail(renderer, "** of floats is not supported");
    default:
        return floor_divide_floats(operation, first, second);
    }
}

/* A text or a list, several times. */
static nnefc_value repeated(nnefc_renderer *renderer, nnefc_value value, int64_t count) {
    size_t each = value.kind == NNEFC_KIND_STRING ? value.size : value.list->count * sizeof(nnefc_value);
    if (each > 0 && count > 0 && (uint64_t)count > renderer->bytes_left / each)
        return nnefc_chat_fail(renderer, "the chat template takes too much memory");
    if (value.kind == NNEFC_KIND_STRING) {
        size_t begin = renderer->size;
        for (int64_t i = 0; i < count && value.size > 0 && !nnefc_failed(renderer); i++)
            nnefc_chat_write(renderer, value.bytes, value.size);
        return nnefc_chat_taken(renderer, begin);
    }
    nnefc_list *made = nnefc_chat_list(renderer, 4);
    for (int64_t i = 0; i < count && value.list->count > 0 && !nnefc_failed(renderer); i++)
        for (uint32_t j = 0; j < value.list->count; j++) nnefc_chat_append(renderer, made, value.list->elements[j]);
    return nnefc_list_of(value.kind, made);
}

static nnefc_value added_lists(nnefc_renderer *renderer, nnefc_value first, nnefc_value second) {
    nnefc_list *made = nnefc_chat_list(renderer, first.list->count + second.list->count);
    for (uint32_t i = 0; i < first.list->count; i++) nnefc_chat_append(renderer, made, first.list->elements[i]);
    for (uint32_t i = 0; i < second.list->count; i++) nnefc_chat_append(renderer, made, second.list->elements[i]);
    return nnefc_list_of(first.kind, made);
}

static bool is_sequence(nnefc_value value) {
    return value.kind == NNEFC_KIND_STRING || value.kind == NNEFC_KIND_LIST || value.kind == NNEFC_KIND_TUPLE;
}

nnefc_value nnefc_chat_arithmetic(nnefc_renderer *renderer, nnefc_opcode operation, nnefc_value first, nnefc_value second) {
    if (nnefc_is_integer(first) && nnefc_is_integer(second)) return of_integers(renderer, operation, first.integer, second.integer);
    if (nnefc_is_number(first) && nnefc_is_number(second))
        return of_floats(renderer, operation, nnefc_number(first), nnefc_number(second));
    if (first.kind == NNEFC_KIND_UNDEFINED) return nnefc_chat_fail_undefined(renderer, first);
    if (second.kind == NNEFC_KIND_UNDEFINED) return nnefc_chat_fail_undefined(renderer, second);
    if (operation == NNEFC_OP_ADD && is_sequence(first) && first.kind == second.kind)
        return first.kind == NNEFC_KIND_STRING ? nnefc_chat_joined(renderer, first, second) : added_lists(renderer, first, second);
    if (operation == NNEFC_OP_MULTIPLY && is_sequence(first) && nnefc_is_integer(second)) return repeated(renderer, first, second.integer);
    if (operation == NNEFC_OP_MULTIPLY && is_sequence(second) && nnefc_is_integer(first)) return repeated(renderer, second, first.integer);
    return nnefc_chat_fail(renderer, "unsupported operand types of an arithmetic operation");
}

nnefc_value nnefc_chat_negated(nnefc_renderer *renderer, nnefc_value value) {
    if (value.kind == NNEFC_KIND_FLOAT) return nnefc_float(-value.number);
    if (!nnefc_is_integer(value)) return nnefc_chat_arithmetic(renderer, NNEFC_OP_SUBTRACT, nnefc_integer(0), value);
    return value.integer == INT64_MIN ? too_large(renderer) : nnefc_integer(-value.integer);
}

void nnefc_chat_write_integer(nnefc_renderer *renderer, int64_t number) {
    char text[24];
    nnefc_chat_write(renderer, text, (size_t)snprintf(text, sizeof text, "%" PRId64, number));
}

/* The fewest digits that are this number, which is finite; returns their count, and their exponent as that of the first. */
static int shortest(double number, char *digits, int *exponent) {
    int count = 0;
    for (int wanted = 1; wanted <= SHORTEST; wanted++) {
        char text[48], back[48];
        snprintf(text, sizeof text, "%.*e", wanted - 1, number);
        const char *at = text;
        for (count = 0; *at != 'e' && *at != '\0'; at++) /* a point of the locale's is left out */
            if (*at >= '0' && *at <= '9') digits[count++] = *at;
        *exponent = (int)strtol(*at == 'e' ? at + 1 : at, NULL, 10);
        snprintf(back, sizeof back, "%s%.*se%d", number < 0 ? "-" : "", count, digits, *exponent - count + 1);
        if (strtod(back, NULL) == number) break;
    }
    while (count > 1 && digits[count - 1] == '0') count--;
    return count;
}

void nnefc_chat_write_float(nnefc_renderer *renderer, double number) {
    char digits[SHORTEST + 1], text[48];
    size_t size = 0;
    if (number != number || number - number != 0) {
        const char *name = number != number ? "nan" : number > 0 ? "inf" : "-inf";
        nnefc_chat_write(renderer, name, strlen(name));
        return;
    }
    int exponent = 0, count = shortest(number, digits, &exponent);
    if (number < 0 || (number == 0 && 1 / number < 0)) text[size++] = '-';
    bool is_scientific = exponent < -4 || exponent >= 16;
    int point = is_scientific ? 1 : exponent + 1; /* how many digits are before it */
    if (point <= 0) {
        text[size++] = '0', text[size++] = '.';
        for (; point < 0; point++) text[size++] = '0';
        point = -1;
    }
    for (int i = 0; i < count || i < point; i++) {
        if (i == point) text[size++] = '.';
        text[size++] = i < count ? digits[i] : '0';
    }
    if (point >= count && !is_scientific) text[size++] = '.', text[size++] = '0';
    if (is_scientific) size += (size_t)snprintf(text + size, sizeof text - size, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    nnefc_chat_write(renderer, text, size);
}

double nnefc_chat_parse_float(const char *text, size_t size) {
    char digits[MAX_DIGITS + 32];
    size_t count = 0;
    int64_t exponent = 0;
    bool has_point = false;
    size_t at = 0;
    if (at < size && (text[at] == '-' || text[at] == '+')) digits[count++] = text[at++];
    for (; at < size && text[at] != 'e' && text[at] != 'E'; at++) {
        if (text[at] == '.') {
            has_point = true;
            continue;
        }
        if (text[at] < '0' || text[at] > '9') continue;
        bool fits = count < MAX_DIGITS;
        if (fits) digits[count++] = text[at];
        exponent += !fits - has_point;
    }
    if (at < size) {
        int64_t given = 0;
        bool is_negative = ++at < size && text[at] == '-';
        for (; at < size; at++)
            if (text[at] >= '0' && text[at] <= '9' && given < 100000000) given = given * 10 + (text[at] - '0');
        exponent += is_negative ? -given : given;
    }
    snprintf(digits + count, sizeof digits - count, "e%" PRId64, exponent);
    return strtod(digits, NULL); /* no point of the locale's is in it */
}

/* The text without white space at its ends, and without underscores between digits. False if it is none of a number's. */
static bool number_text(nnefc_renderer *renderer, nnefc_value text, char *into, size_t *size, bool *is_whole) {
    text = nnefc_chat_stripped(renderer, text, nnefc_none(), 3);
    *size = 0;
    *is_whole = true;
    bool digit_before = false, has_point = false, has_exponent = false, has_digit = false;
    for (uint32_t i = 0; i < text.size; i++) {
        char c = text.bytes[i], next = i + 1 < text.size ? text.bytes[i + 1] : '\0';
        bool is_digit = c >= '0' && c <= '9';
        if (c == '_' && digit_before && next >= '0' && next <= '9') continue;
        bool begins = *size == 0 || into[*size - 1] == 'e';
        bool is_sign = (c == '-' || c == '+') && begins;
        bool is_point = c == '.' && !has_point && !has_exponent;
        bool is_exponent = (c == 'e' || c == 'E') && has_digit && !has_exponent;
        if ((!is_digit && !is_sign && !is_point && !is_exponent) || *size >= MAX_DIGITS) return false;
        has_point |= is_point, has_exponent |= is_exponent, has_digit |= is_digit;
        *is_whole = *is_whole && !is_point && !is_exponent;
        into[(*size)++] = is_exponent ? 'e' : c;
        digit_before = is_digit;
    }
    bool ends_well = *size > 0 && (digit_before || (into[*size - 1] == '.' && has_digit));
    return has_digit && ends_well;
}

static nnefc_value integer_of_digits(nnefc_renderer *renderer, const char *digits, size_t size) {
    bool is_negative = digits[0] == '-', fits = true;
    int64_t made = 0;
    for (size_t i = digits[0] == '-' || digits[0] == '+'; i < size && fits; i++) {
        int64_t digit = digits[i] - '0';
        fits = multiply(made, 10, &made) && !__builtin_add_overflow(made, is_negative ? -digit : digit, &made);
    }
    return fits ? nnefc_integer(made) : too_large(renderer);
}

static nnefc_value integer_of_float(nnefc_renderer *renderer, double number, nnefc_value otherwise) {
    if (number != number || number - number != 0) return otherwise;
    if (number >= 9223372036854775808.0 || number < -9223372036854775808.0) return too_large(renderer);
    return nnefc_integer((int64_t)number);
}

nnefc_value nnefc_chat_to_integer(nnefc_renderer *renderer, nnefc_value value, nnefc_value otherwise) {
    char text[MAX_DIGITS + 1];
    size_t size = 0;
    bool is_whole = false;
    if (value.kind == NNEFC_KIND_UNDEFINED) return nnefc_chat_fail_undefined(renderer, value);
    if (nnefc_is_integer(value)) return nnefc_integer(value.integer);
    if (value.kind == NNEFC_KIND_BIG) return value;
    if (value.kind == NNEFC_KIND_FLOAT) return integer_of_float(renderer, value.number, otherwise);
    if (value.kind != NNEFC_KIND_STRING || !number_text(renderer, value, text, &size, &is_whole)) return otherwise;
    if (is_whole) return integer_of_digits(renderer, text, size);
    return integer_of_float(renderer, nnefc_chat_parse_float(text, size), otherwise);
}

/* A short text, with a null byte behind it. */
static const char *text_of(nnefc_value value, char *into) {
    memcpy(into, value.bytes, value.size);
    into[value.size] = '\0';
    return into;
}

nnefc_value nnefc_chat_to_float(nnefc_renderer *renderer, nnefc_value value, nnefc_value otherwise) {
    char text[MAX_DIGITS + 1];
    size_t size = 0;
    bool is_whole = false;
    if (value.kind == NNEFC_KIND_UNDEFINED) return nnefc_chat_fail_undefined(renderer, value);
    if (nnefc_is_number(value)) return nnefc_float(nnefc_number(value));
    if (value.kind != NNEFC_KIND_STRING) return otherwise;
    if (number_text(renderer, value, text, &size, &is_whole)) return nnefc_float(nnefc_chat_parse_float(text, size));
    bool is_special = value.size > 0 && value.size < 10 && (strpbrk(text_of(value, text), "nN") != NULL);
    return is_special ? nnefc_chat_fail(renderer, "the text '%s' as a number is not supported", text) : otherwise;
}

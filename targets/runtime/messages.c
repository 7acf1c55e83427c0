#include "messages.h"

#if defined(__wasi__)
#include <stdbool.h>
#include <stdint.h>

typedef struct message {
    char *text;
    size_t size, length; /* what there is room for, and what there is to write */
} message;

static void put(message *to, char letter) {
    if (to->length + 1 < to->size) to->text[to->length] = letter;
    to->length++;
}

/* A text, or so many bytes of it; all if that is a negative number. */
static void put_text(message *to, const char *text, int maximum) {
    for (; maximum != 0 && *text != '\0'; maximum--) put(to, *text++);
}

static void put_number(message *to, uint64_t value, unsigned base) {
    char digits[20]; /* of the largest one */
    size_t count = 0;
    do digits[count++] = "0123456789abcdef"[value % base];
    while ((value /= base) > 0);
    while (count > 0) put(to, digits[--count]);
}

static void put_signed(message *to, int64_t value) {
    if (value < 0) put(to, '-');
    put_number(to, value < 0 ? -(uint64_t)value : (uint64_t)value, 10);
}

/* Reads a precision, which may be none, a negative number; what comes after it. */
static const char *read_precision(const char *format, va_list *arguments, int *precision) {
    *precision = -1;
    if (*format != '.') return format;
    format++;
    if (*format == '*') {
        *precision = va_arg(*arguments, int);
        return format + 1;
    }
    for (*precision = 0; *format >= '0' && *format <= '9'; format++) *precision = 10 * *precision + (*format - '0');
    return format;
}

int nnefc_vsnprintf(char *text, size_t size, const char *format, va_list given) {
    message to = {text, size, 0};
    va_list arguments;
    va_copy(arguments, given);
    for (; *format != '\0'; format++) {
        if (*format != '%') {
            put(&to, *format);
            continue;
        }
        int precision;
        format = read_precision(format + 1, &arguments, &precision);
        bool is_long = format[0] == 'l' && format[1] == 'l';
        if (is_long) format += 2;
        switch (*format) {
            case 's':
                put_text(&to, va_arg(arguments, const char *), precision);
                break;
            case 'd':
                put_signed(&to, is_long ? va_arg(arguments, long long) : va_arg(arguments, int));
                break;
            case 'u':
            case 'x':
                put_number(&to, is_long ? va_arg(arguments, unsigned long long) : va_arg(arguments, unsigned),
                           *format == 'x' ? 16 : 10);
                break;
            default:
                __builtin_trap(); /* no message has another one: a test looks at all */
        }
    }
    va_end(arguments);
    if (size > 0) text[to.length < size ? to.length : size - 1] = '\0';
    return (int)to.length;
}

int nnefc_snprintf(char *text, size_t size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = nnefc_vsnprintf(text, size, format, arguments);
    va_end(arguments);
    return length;
}
#endif

/* Dates, as strftime of Python writes them in English. */
#include <stdio.h>
#include <string.h>

#include "chat/values.h"

enum { SECONDS_OF_DAY = 86400 };

typedef struct date {
    int64_t year;
    int month, day, weekday, day_of_year; /* from 1 on, but weekday from 0 for Sunday */
    int hour, minute, second;
} date;

static bool is_leap(int64_t year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

static int days_of_month(int64_t year, int month) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return days[month - 1] + (month == 2 && is_leap(year));
}

/* For the years from 1 to 9999. */
static date date_of(int64_t seconds) {
    int64_t day = seconds / SECONDS_OF_DAY, left = seconds % SECONDS_OF_DAY;
    if (left < 0) day--, left += SECONDS_OF_DAY;
    date made = {.year = 1970, .month = 1};
    made.weekday = (int)(((day + 4) % 7 + 7) % 7);
    for (; day < 0; made.year--) day += 365 + is_leap(made.year - 1);
    for (; day >= 365 + is_leap(made.year); made.year++) day -= 365 + is_leap(made.year);
    made.day_of_year = (int)day + 1;
    for (; day >= days_of_month(made.year, made.month); made.month++) day -= days_of_month(made.year, made.month);
    made.day = (int)day + 1;
    made.hour = (int)(left / 3600), made.minute = (int)(left / 60 % 60), made.second = (int)(left % 60);
    return made;
}

static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};
static const char *const weekdays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};

static void write_number(nnefc_renderer *renderer, int64_t number, int width, bool is_short) {
    char text[24];
    nnefc_chat_write(renderer, text, (size_t)snprintf(text, sizeof text, "%0*lld", is_short ? 1 : width, (long long)number));
}

static void write_name(nnefc_renderer *renderer, const char *name, bool is_short) {
    nnefc_chat_write(renderer, name, is_short ? 3 : strlen(name));
}

/* Writes what a letter after % stands for; `is_short`: with - between, numbers have no zeros before them. */
static void write_part(nnefc_renderer *renderer, const date *now, char letter, bool is_short) {
    switch (letter) {
    case 'Y':
        write_number(renderer, now->year, is_short ? 1 : 4, is_short);
        return;
    case 'y':
        write_number(renderer, now->year % 100, 2, is_short);
        return;
    case 'm':
        write_number(renderer, now->month, 2, is_short);
        return;
    case 'd':
        write_number(renderer, now->day, 2, is_short);
        return;
    case 'j':
        write_number(renderer, now->day_of_year, 3, is_short);
        return;
    case 'H':
        write_number(renderer, now->hour, 2, is_short);
        return;
    case 'I':
        write_number(renderer, (now->hour + 11) % 12 + 1, 2, is_short);
        return;
    case 'M':
        write_number(renderer, now->minute, 2, is_short);
        return;
    case 'S':
        write_number(renderer, now->second, 2, is_short);
        return;
    case 'B':
        write_name(renderer, months[now->month - 1], false);
        return;
    case 'b':
        write_name(renderer, months[now->month - 1], true);
        return;
    case 'A':
        write_name(renderer, weekdays[now->weekday], false);
        return;
    case 'a':
        write_name(renderer, weekdays[now->weekday], true);
        return;
    case 'p':
        nnefc_chat_write(renderer, now->hour < 12 ? "AM" : "PM", 2);
        return;
    case '%':
        nnefc_chat_write(renderer, "%", 1);
        return;
    default:
        nnefc_chat_fail(renderer, "strftime_now: %%%c is not supported", letter >= ' ' && letter <= '~' ? letter : '?');
    }
}

nnefc_value nnefc_chat_time(nnefc_renderer *renderer, nnefc_value format) {
    static const int64_t first = INT64_C(-62135596800), last = INT64_C(253402300799);
    int64_t time = renderer->local_time;
    if (format.kind != NNEFC_KIND_STRING) return nnefc_chat_fail(renderer, "strftime_now takes a text");
    if (time == 0) return nnefc_chat_fail(renderer, "the chat template writes the date, but no time was given");
    if (time < first || time > last) return nnefc_chat_fail(renderer, "the time is not in the years from 1 to 9999");
    date now = date_of(time);
    size_t begin = renderer->size;
    for (uint32_t i = 0; i < format.size && !nnefc_failed(renderer); i++) {
        if (format.bytes[i] != '%') {
            nnefc_chat_write(renderer, &format.bytes[i], 1);
            continue;
        }
        bool is_short = i + 1 < format.size && format.bytes[i + 1] == '-';
        i += 1 + is_short;
        write_part(renderer, &now, i < format.size ? format.bytes[i] : '\0', is_short);
    }
    return nnefc_chat_taken(renderer, begin);
}

/* Tests. */
#include "chat/values.h"

static bool left_over(nnefc_renderer *renderer, nnefc_value value, nnefc_value divisor, int64_t expected) {
    nnefc_value left = nnefc_chat_arithmetic(renderer, NNEFC_OP_MODULO, value, divisor);
    return nnefc_is_number(left) && nnefc_chat_equal(renderer, left, nnefc_integer(expected));
}

static bool is_sequence(nnefc_value value) {
    switch (value.kind) {
    case NNEFC_KIND_STRING:
    case NNEFC_KIND_LIST:
    case NNEFC_KIND_TUPLE:
    case NNEFC_KIND_DICT:
    case NNEFC_KIND_RANGE:
    case NNEFC_KIND_UNDEFINED:
        return true;
    default:
        return false;
    }
}

bool nnefc_chat_test(nnefc_renderer *renderer, nnefc_test test, const nnefc_value *values, uint32_t count) {
    static const nnefc_opcode relations[] = {NNEFC_OP_EQUAL,      NNEFC_OP_NOT_EQUAL, NNEFC_OP_LESS,
                                             NNEFC_OP_LESS_EQUAL, NNEFC_OP_GREATER,   NNEFC_OP_GREATER_EQUAL};
    nnefc_value value = values[0];
    (void)count;
    switch (test) {
    case NNEFC_TEST_BOOLEAN:
        return nnefc_is(value, NNEFC_KIND_BOOLEAN);
    case NNEFC_TEST_DEFINED:
        return !nnefc_is(value, NNEFC_KIND_UNDEFINED);
    case NNEFC_TEST_DIVISIBLEBY:
        return left_over(renderer, value, values[1], 0);
    case NNEFC_TEST_EVEN:
        return left_over(renderer, value, nnefc_integer(2), 0);
    case NNEFC_TEST_FALSE:
        return nnefc_is(value, NNEFC_KIND_BOOLEAN) && value.integer == 0;
    case NNEFC_TEST_FLOAT:
        return nnefc_is(value, NNEFC_KIND_FLOAT);
    case NNEFC_TEST_INTEGER:
        return nnefc_is(value, NNEFC_KIND_INTEGER) || nnefc_is(value, NNEFC_KIND_BIG);
    case NNEFC_TEST_ITERABLE:
        return nnefc_chat_is_iterable(value);
    case NNEFC_TEST_MAPPING:
        return nnefc_is(value, NNEFC_KIND_DICT);
    case NNEFC_TEST_NONE:
        return nnefc_is(value, NNEFC_KIND_NONE);
    case NNEFC_TEST_NUMBER:
        return nnefc_is_number(value) || nnefc_is(value, NNEFC_KIND_BIG);
    case NNEFC_TEST_ODD:
        return left_over(renderer, value, nnefc_integer(2), 1);
    case NNEFC_TEST_SEQUENCE:
        return is_sequence(value);
    case NNEFC_TEST_STRING:
        return nnefc_is(value, NNEFC_KIND_STRING);
    case NNEFC_TEST_TRUE:
        return nnefc_is(value, NNEFC_KIND_BOOLEAN) && value.integer != 0;
    case NNEFC_TEST_UNDEFINED:
        return nnefc_is(value, NNEFC_KIND_UNDEFINED);
    case NNEFC_TEST_EQ:
    case NNEFC_TEST_NE:
    case NNEFC_TEST_LT:
    case NNEFC_TEST_LE:
    case NNEFC_TEST_GT:
    case NNEFC_TEST_GE:
        return nnefc_chat_relation(renderer, relations[test - NNEFC_TEST_EQ], value, values[1]);
    case NNEFC_TEST_IN:
        return nnefc_chat_contains(renderer, values[1], value);
    case NNEFC_TEST_TRUTH:
        return nnefc_chat_truth(renderer, value);
    default:
        nnefc_chat_fail(renderer, "a test is not known");
        return false;
    }
}

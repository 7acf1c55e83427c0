/* A plugin of QEMU's user emulators, interface version 1: counts the instructions that a program executes, and prints the
 * number on stderr when it ends. With `blocks=FILE` it also writes each block of code that was executed: its address, how
 * often, and its bytes in hexadecimal digits. What it calls is declared here, for Debian's QEMU comes without the header. */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct block;
struct instruction;
enum operation { ADD_U64 };

extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*translated)(uint64_t, struct block *));
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct block *, enum operation, void *counter, uint64_t value);
extern size_t qemu_plugin_tb_n_insns(const struct block *);
extern uint64_t qemu_plugin_tb_vaddr(const struct block *);
extern struct instruction *qemu_plugin_tb_get_insn(const struct block *, size_t);
extern const void *qemu_plugin_insn_data(const struct instruction *);
extern size_t qemu_plugin_insn_size(const struct instruction *);
extern void qemu_plugin_register_atexit_cb(uint64_t id, void (*ended)(uint64_t, void *), void *data);

EXPORT int qemu_plugin_version = 1;

enum { MAX_BYTES = 16 }; /* of an instruction, on any machine */

struct totals {
    uint64_t address, executed, instructions;
    size_t bytes;
    unsigned char *code; /* NULL where blocks are not asked for */
    struct totals *before;
};

static struct totals *last;
static const char *file;

/* QEMU translates one block at a time. */
static void translated(uint64_t id, struct block *block) {
    (void)id;
    struct totals *made = calloc(1, sizeof *made);
    if (made == NULL) abort();
    made->address = qemu_plugin_tb_vaddr(block);
    made->instructions = qemu_plugin_tb_n_insns(block);
    if (file != NULL) {
        made->code = malloc(made->instructions * MAX_BYTES);
        if (made->code == NULL) abort();
        for (size_t i = 0; i < made->instructions; i++) {
            const struct instruction *one = qemu_plugin_tb_get_insn(block, i);
            size_t size = qemu_plugin_insn_size(one);
            memcpy(made->code + made->bytes, qemu_plugin_insn_data(one), size);
            made->bytes += size;
        }
    }
    made->before = last, last = made;
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, &made->executed, 1);
}

static void ended(uint64_t id, void *data) {
    (void)id, (void)data;
    uint64_t all = 0;
    FILE *blocks = file == NULL ? NULL : fopen(file, "w");
    for (const struct totals *one = last; one != NULL; one = one->before) {
        all += one->instructions * one->executed;
        if (blocks == NULL || one->executed == 0) continue;
        fprintf(blocks, "%" PRIx64 " %" PRIu64 " ", one->address, one->executed);
        for (size_t i = 0; i < one->bytes; i++) fprintf(blocks, "%02x", one->code[i]);
        fputc('\n', blocks);
    }
    if (blocks != NULL) fclose(blocks);
    fprintf(stderr, "instructions: %" PRIu64 "\n", all);
}

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv) {
    (void)info;
    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], "blocks=", 7) == 0) file = strdup(argv[i] + 7);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}

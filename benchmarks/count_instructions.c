/* A plugin of QEMU's user emulators, interface version 1: counts the instructions that a program executes, and prints the
 * number on stderr when it ends. What it calls is declared here, for Debian's QEMU comes without the header. */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

struct block;
enum operation { ADD_U64 };

extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*translated)(uint64_t, struct block *));
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct block *, enum operation, void *counter, uint64_t value);
extern size_t qemu_plugin_tb_n_insns(const struct block *);
extern void qemu_plugin_register_atexit_cb(uint64_t id, void (*ended)(uint64_t, void *), void *data);

EXPORT int qemu_plugin_version = 1;

static uint64_t executed;

static void translated(uint64_t id, struct block *block) {
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, &executed, qemu_plugin_tb_n_insns(block));
}

static void ended(uint64_t id, void *data) {
    (void)id, (void)data;
    fprintf(stderr, "instructions: %" PRIu64 "\n", executed);
}

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv) {
    (void)info, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}

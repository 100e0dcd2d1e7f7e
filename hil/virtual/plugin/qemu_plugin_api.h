/* qemu_plugin_api.h: the part of QEMU's TCG plugin interface that the profiler uses.
 * No Debian package ships QEMU's own header, so the documented interface is declared here (version 1 of the interface is
 * QEMU 4.2 to 8.1; these functions are unchanged in version 2). QEMU resolves them when it loads the plugin.
 */
#ifndef QEMU_PLUGIN_API_H
#define QEMU_PLUGIN_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLUGIN_EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info; /* handed to the plugin, not looked at */

enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS = 0 };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_R = 1, QEMU_PLUGIN_MEM_W = 2, QEMU_PLUGIN_MEM_RW = 3 };

typedef void (*qemu_plugin_tb_trans_cb)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*qemu_plugin_exec_cb)(unsigned, void *);
typedef void (*qemu_plugin_mem_cb)(unsigned, qemu_plugin_meminfo_t, uint64_t, void *);
typedef void (*qemu_plugin_exit_cb)(qemu_plugin_id_t, void *);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, qemu_plugin_tb_trans_cb);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, qemu_plugin_exec_cb, int flags, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, qemu_plugin_mem_cb, int flags, int rw, void *);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, qemu_plugin_exit_cb, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);
unsigned qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t);

#endif

/* profiler.c: a QEMU plugin that counts, for each op of a network, which code block followed which and which cache lines
 * were fetched.
 *
 * The guest stores to prof_stamp[i] right before op i and to the last element after the last op: such a store ends one
 * region and begins the next. A pass is one inference, from the store to element 0 to the store to the last one. A block
 * that holds such a store is split there, so each instruction counts for the region in which it ran.
 *
 * Arguments: out=FILE, marks=ADDRESS:COUNT or whole=1, icache=BYTES:WAYS:LINE, dcache=BYTES:WAYS:LINE and any number of
 * memory=ADDRESS:BYTES:KIND, where KIND is 0 for memory that no cache serves, 1 for flash, 2 for RAM. Lines of FILE:
 *     pass N
 *     region I FLASH_CODE_FILLS RAM_CODE_FILLS FLASH_DATA_FILLS RAM_LOAD_FILLS RAM_STORE_FILLS WRITE_BACKS
 *     edge FROM_ADDRESS FROM_COUNT TO_ADDRESS TO_COUNT TIMES      (a count is a number of instructions; 0: nothing before)
 *     block ADDRESS COUNT and the six figures of a region      (with `whole`: what this block fetched)
 *     end N
 * With whole=1 there are no marks: all that runs until QEMU ends is one region.
 * With trace=FILE the lines that each region touches go there, see trace_model.h; with between=FILE those of what runs
 * between two passes, as the last mark's region.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache_model.h"
#include "qemu_plugin_api.h"
#include "trace_model.h"

#ifndef PLUGIN_API_VERSION
#define PLUGIN_API_VERSION 1
#endif

#define EDGE_SLOTS (1u << 18)
#define EDGE_LIMIT (EDGE_SLOTS / 4u * 3u)
#define MEMORY_LIMIT 16u
#define MARK_BYTES 4u
#define PAGE_BYTES 1024u /* an M-profile core's: as small as the regions of its MPU may be */

enum memory_kind { MEMORY_UNCACHED = 0, MEMORY_FLASH = 1, MEMORY_RAM = 2 };

struct fills {
    uint64_t code[3]; /* by memory_kind */
    uint64_t loads[3];
    uint64_t stores[3];
    uint64_t write_backs;
};

struct block {
    uint64_t address;
    uint32_t instructions;
    uint32_t id; /* from 1; 0 stands for 'nothing' */
    uint64_t last; /* byte */
    uint64_t first_line;
    uint64_t last_line;
    struct fills fills; /* with `whole` only */
};

/* An instruction that touches memory, and where in its translated block it stands. */
struct site {
    const struct block *block;
    uint32_t index;
    uint64_t next_address;
};

struct edge {
    uint64_t key; /* from id << 32 | to id; 0: empty slot */
    int64_t times;
};

struct memory {
    uint64_t address;
    uint64_t bytes;
    enum memory_kind kind;
};

PLUGIN_EXPORT int qemu_plugin_version = PLUGIN_API_VERSION;

static FILE *out;
static struct trace trace;
static bool traces_between;
static uint64_t marks_address;
static uint64_t marks_count;
static struct memory memories[MEMORY_LIMIT];
static uint32_t memory_count;
static struct cache code_cache;
static struct cache data_cache;

static struct block **blocks; /* blocks[id - 1] */
static uint32_t block_count;
static uint32_t block_room;
static struct edge edges[EDGE_SLOTS];
static uint32_t used_slots[EDGE_LIMIT];
static uint32_t used_count;

static bool whole;
static bool in_pass;
static uint32_t pass;
static uint32_t region;
static struct fills fills;
static uint32_t previous_id;
static const struct block *current;
static uint32_t current_first_index; /* of `current` within the translated block, after a split */

static void stop(const char *reason)
{
    fprintf(stderr, "profiler plugin: %s\n", reason);
    exit(EXIT_FAILURE);
}

static enum memory_kind kind_of(uint64_t address)
{
    for (uint32_t i = 0; i < memory_count; i++) {
        if (address - memories[i].address < memories[i].bytes) {
            return memories[i].kind;
        }
    }
    return MEMORY_UNCACHED;
}

static struct block *block_at(uint64_t address, uint32_t instructions, uint64_t end)
{
    for (uint32_t i = 0; i < block_count; i++) {
        if (blocks[i]->address == address && blocks[i]->instructions == instructions) {
            return blocks[i];
        }
    }
    if (block_count == block_room) {
        block_room = block_room == 0u ? 1024u : 2u * block_room;
        blocks = realloc(blocks, block_room * sizeof *blocks);
    }
    struct block *const block = malloc(sizeof *block);
    if (blocks == NULL || block == NULL) {
        stop("out of memory");
    }
    const uint64_t last = end - 1u, line_bytes = code_cache.line_bytes;
    *block = (struct block){address, instructions, block_count + 1u, last, address / line_bytes, last / line_bytes, {{0}}};
    blocks[block_count++] = block;
    return block;
}

static void count_edge(uint32_t from, uint32_t to, int64_t times)
{
    const uint64_t key = ((uint64_t)from << 32) | to;
    uint32_t slot = (uint32_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 46);
    while (edges[slot].key != 0u && edges[slot].key != key) {
        slot = (slot + 1u) % EDGE_SLOTS;
    }
    if (edges[slot].key == 0u) {
        if (used_count == EDGE_LIMIT) {
            stop("more block edges in one op than the table holds");
        }
        edges[slot].key = key;
        used_slots[used_count++] = slot;
    }
    edges[slot].times += times;
}

static void forget_region(void)
{
    for (uint32_t i = 0; i < used_count; i++) {
        edges[used_slots[i]] = (struct edge){0};
    }
    used_count = 0;
    fills = (struct fills){0};
}

static void write_fills(const struct fills *seen)
{
    fprintf(out, " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", seen->code[MEMORY_FLASH],
            seen->code[MEMORY_RAM], seen->loads[MEMORY_FLASH] + seen->stores[MEMORY_FLASH], seen->loads[MEMORY_RAM],
            seen->stores[MEMORY_RAM], seen->write_backs);
}

static void write_region(void)
{
    fprintf(out, "region %" PRIu32, region);
    write_fills(&fills);
    for (uint32_t i = 0; i < used_count; i++) {
        const struct edge *const edge = &edges[used_slots[i]];
        const uint32_t from = (uint32_t)(edge->key >> 32);
        const struct block *const to = blocks[(uint32_t)edge->key - 1u];
        if (edge->times != 0) {
            fprintf(out, "edge %" PRIx64 " %" PRIu32 " %" PRIx64 " %" PRIu32 " %" PRId64 "\n",
                    from == 0u ? 0u : blocks[from - 1u]->address, from == 0u ? 0u : blocks[from - 1u]->instructions,
                    to->address, to->instructions, edge->times);
        }
    }
}

/* What ran up to a mark: with the block before it, where QEMU cut the two only because a page ends. What follows the
 * mark waits for the results of both. */
static const struct block *up_to(const struct block *head)
{
    const struct block *const before = previous_id == 0u ? NULL : blocks[previous_id - 1u];
    const bool is_at_cut = head->address % PAGE_BYTES == 0u || head->address / PAGE_BYTES != head->last / PAGE_BYTES;
    if (before == NULL || before->last + 1u != head->address || !is_at_cut) {
        return head;
    }
    return block_at(before->address, before->instructions + head->instructions, head->last + 1u);
}

/* A store to prof_stamp[mark]: what `current` has executed so far ends the old region, the rest of it begins the new one. */
static void enter_region(const struct site *site, uint32_t mark)
{
    const uint32_t done = site->index - current_first_index + 1u;
    const uint32_t left = current->instructions - done;
    const struct block *const head = block_at(current->address, done, site->next_address);
    if (in_pass) {
        count_edge(previous_id, current->id, -1);
        count_edge(previous_id, head->id, 1);
        write_region();
    }
    forget_region();
    if (mark == 0u) {
        in_pass = true;
        fprintf(out, "pass %" PRIu32 "\n", pass);
    } else if (in_pass && mark == marks_count - 1u) {
        in_pass = false;
        fprintf(out, "end %" PRIu32 "\n", pass);
        pass++;
    }
    region = mark;
    trace_region(&trace, mark, in_pass != traces_between);
    const struct block *const done_here = up_to(head);
    previous_id = done_here->id;
    if (left == 0u) {
        current = done_here;
    } else {
        current = block_at(site->next_address, left, current->last + 1u);
        current_first_index = site->index + 1u;
        if (in_pass) {
            count_edge(previous_id, current->id, 1);
        }
    }
}

/* Where lines are counted now. */
static struct fills *here(void)
{
    return whole && current != NULL ? &blocks[current->id - 1u]->fills : &fills;
}

static void on_block(unsigned cpu, void *user)
{
    (void)cpu;
    const struct block *const block = user;
    previous_id = current == NULL ? 0u : current->id;
    current = block;
    current_first_index = 0u;
    if (in_pass) {
        count_edge(previous_id, block->id, 1);
    }
    if (trace.is_on) {
        trace_code(&trace, block->address, block->last);
    }
    const enum memory_kind kind = kind_of(block->address);
    if (kind != MEMORY_UNCACHED) {
        for (uint64_t line = block->first_line; line <= block->last_line; line++) {
            if (cache_touch(&code_cache, line, false).filled) {
                here()->code[kind]++;
            }
        }
    }
}

static void on_access(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void *user)
{
    (void)cpu;
    const bool is_store = qemu_plugin_mem_is_store(info);
    if (is_store && address - marks_address < marks_count * MARK_BYTES) {
        enter_region(user, (uint32_t)((address - marks_address) / MARK_BYTES));
        return; /* the profiler's own store is no part of the network's memory traffic */
    }
    if (trace.is_on) {
        trace_data(&trace, address, address + (UINT64_C(1) << qemu_plugin_mem_size_shift(info)) - 1u, is_store);
    }
    const enum memory_kind kind = kind_of(address);
    if (kind == MEMORY_UNCACHED) {
        return;
    }
    const uint64_t line_bytes = data_cache.line_bytes;
    const uint64_t last = (address + (UINT64_C(1) << qemu_plugin_mem_size_shift(info)) - 1u) / line_bytes;
    for (uint64_t line = address / line_bytes; line <= last; line++) {
        const struct cache_outcome outcome = cache_touch(&data_cache, line, is_store);
        if (outcome.filled) {
            (is_store ? here()->stores : here()->loads)[kind]++;
        }
        if (outcome.written_back != CACHE_NO_LINE) {
            here()->write_backs++;
        }
    }
}

/* Not by QEMU's size: where a page ends two bytes further on, that holds two bytes of the next instruction, too. */
static uint64_t end_of(const struct qemu_plugin_insn *instruction)
{
    const uint8_t *const bytes = qemu_plugin_insn_data(instruction);
    const bool is_wide = bytes[1] >> 3 >= 0x1du; /* of Thumb: 0b11101, 0b11110 and 0b11111 */
    return qemu_plugin_insn_vaddr(instruction) + (is_wide ? 4u : 2u);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    (void)id;
    const size_t count = qemu_plugin_tb_n_insns(tb);
    const struct qemu_plugin_insn *const last = qemu_plugin_tb_get_insn(tb, count - 1u);
    struct block *const block = block_at(qemu_plugin_tb_vaddr(tb), (uint32_t)count, end_of(last));
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_PLUGIN_CB_NO_REGS, block);
    struct site *const sites = malloc(count * sizeof *sites);
    if (sites == NULL) {
        stop("out of memory");
    }
    for (size_t index = 0; index < count; index++) {
        struct qemu_plugin_insn *const instruction = qemu_plugin_tb_get_insn(tb, index);
        sites[index] = (struct site){block, (uint32_t)index, end_of(instruction)};
        qemu_plugin_register_vcpu_mem_cb(instruction, on_access, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, &sites[index]);
    }
}

static void on_exit_of_qemu(qemu_plugin_id_t id, void *user)
{
    (void)id;
    (void)user;
    if (whole) {
        fprintf(out, "pass 0\n");
        write_region();
        for (uint32_t i = 0; i < block_count; i++) {
            fprintf(out, "block %" PRIx64 " %" PRIu32, blocks[i]->address, blocks[i]->instructions);
            write_fills(&blocks[i]->fills);
        }
        fprintf(out, "end 0\n");
    }
    if (fclose(out) != 0 || !trace_close(&trace)) {
        stop("the profile could not be written");
    }
}

/* The part of `argument` after `key`, or NULL. */
static const char *value_of(const char *argument, const char *key)
{
    const size_t length = strlen(key);
    return strncmp(argument, key, length) == 0 ? argument + length : NULL;
}

static bool read_argument(const char *argument)
{
    const char *value;
    uint32_t size, ways, line, kind;
    if ((value = value_of(argument, "out=")) != NULL) {
        out = fopen(value, "w");
        return out != NULL;
    }
    if ((value = value_of(argument, "trace=")) != NULL) {
        return trace_open(&trace, value);
    }
    if ((value = value_of(argument, "between=")) != NULL) {
        traces_between = true;
        return trace_open(&trace, value);
    }
    if ((value = value_of(argument, "marks=")) != NULL) {
        return sscanf(value, "%" SCNu64 ":%" SCNu64, &marks_address, &marks_count) == 2;
    }
    if (strcmp(argument, "whole=1") == 0) {
        whole = in_pass = true;
        return true;
    }
    if ((value = value_of(argument, "icache=")) != NULL) {
        return sscanf(value, "%" SCNu32 ":%" SCNu32 ":%" SCNu32, &size, &ways, &line) == 3 &&
               cache_init(&code_cache, size, ways, line);
    }
    if ((value = value_of(argument, "dcache=")) != NULL) {
        return sscanf(value, "%" SCNu32 ":%" SCNu32 ":%" SCNu32, &size, &ways, &line) == 3 &&
               cache_init(&data_cache, size, ways, line);
    }
    if ((value = value_of(argument, "memory=")) != NULL && memory_count < MEMORY_LIMIT) {
        struct memory *const memory = &memories[memory_count++];
        const int read = sscanf(value, "%" SCNu64 ":%" SCNu64 ":%" SCNu32, &memory->address, &memory->bytes, &kind);
        memory->kind = (enum memory_kind)kind;
        return read == 3 && kind <= MEMORY_RAM;
    }
    return false;
}

PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (!read_argument(argv[i])) {
            fprintf(stderr, "profiler plugin: cannot use the argument '%s'\n", argv[i]);
            return -1;
        }
    }
    if (out == NULL || (marks_count < 2u && !whole) || code_cache.line_bytes == 0u || data_cache.line_bytes == 0u) {
        fprintf(stderr, "profiler plugin: out, marks, icache and dcache are needed\n");
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, on_exit_of_qemu, NULL);
    return 0;
}

/* tiny.c: the smallest image that speaks enough of the protocol for the twin's and the profiler's tests.
 * Its "network" has three ops whose instruction counts can be told by hand: see op_asm.S.
 */
#include <stdbool.h>
#include <stdint.h>

#define UART_DATA (*(volatile uint32_t *)0x40004000u)
#define UART_STATE (*(volatile uint32_t *)0x40004004u)
#define UART_CTRL (*(volatile uint32_t *)0x40004008u)
#define UART_BAUDDIV (*(volatile uint32_t *)0x40004010u)
#define TIMER_CTRL (*(volatile uint32_t *)0x40000000u)
#define TIMER_VALUE (*(volatile uint32_t *)0x40000004u)
#define TIMER_RELOAD (*(volatile uint32_t *)0x40000008u)
#define CPACR (*(volatile uint32_t *)0xE000ED88u)

#define OPS 3u
#define BUFFER_BYTES 8192u

void op_count(uint32_t rounds);
void op_read(const uint8_t *from, uint32_t bytes);
void op_write(uint8_t *to, uint32_t bytes);
void reset_handler(void);

volatile uint32_t prof_stamp[OPS + 1u];
static uint8_t buffer[BUFFER_BYTES] __attribute__((aligned(32)));
const uint8_t weights[BUFFER_BYTES] __attribute__((aligned(32))) = {1};
static char command[80];

static uint32_t ticks(void)
{
    return ~TIMER_VALUE; /* counts down */
}

static void put(const char *text)
{
    for (; *text != '\0'; text++) {
        while ((UART_STATE & 1u) != 0u) {
        }
        UART_DATA = (uint32_t)(uint8_t)*text;
    }
}

static void put_number(uint32_t value)
{
    char digits[11];
    uint32_t at = 10u;
    digits[at] = '\0';
    do {
        at--;
        digits[at] = (char)('0' + (char)(value % 10u));
        value /= 10u;
    } while (value != 0u);
    put(&digits[at]);
}

static void network(void)
{
    prof_stamp[0] = ticks();
    op_count(1000u);
    prof_stamp[1] = ticks();
    op_read(weights, BUFFER_BYTES);
    prof_stamp[2] = ticks();
    op_write(buffer, BUFFER_BYTES);
    prof_stamp[3] = ticks();
}

static bool is(const char *word)
{
    uint32_t at = 0u;
    while (word[at] != '\0' && word[at] == command[at]) {
        at++;
    }
    return word[at] == command[at];
}

static void layers(void)
{
    network();
    for (uint32_t op = 0u; op < OPS; op++) {
        const uint64_t elapsed = prof_stamp[op + 1u] - prof_stamp[op];
        put("m-layer-[");
        put_number(op);
        put(",");
        put_number((uint32_t)((elapsed * 40u + 512u) / 1024u)); /* 40 ns a tick, 1024 ns an instruction */
        put("]\r\n");
    }
}

static void serve(void)
{
    uint32_t length = 0u;
    put("m-timestamp-mode-performance\r\nm-init-done\r\nm-ready\r\n");
    for (;;) {
        while ((UART_STATE & 2u) == 0u) {
        }
        const char got = (char)UART_DATA;
        if (got != '%') {
            if (length < sizeof(command) - 1u) {
                command[length++] = got;
            }
            continue;
        }
        command[length] = '\0';
        length = 0u;
        if (is("layers")) {
            layers();
        } else if (is("build")) {
            put("m-build-[00112233445566aa]\r\n");
        } else {
            put("e-[Unknown command: ");
            put(command);
            put("]\r\n");
        }
        put("m-ready\r\n");
    }
}

void reset_handler(void)
{
    CPACR |= 0xFu << 20;
    UART_BAUDDIV = 16u;
    UART_CTRL = 3u;
    TIMER_RELOAD = 0xFFFFFFFFu;
    TIMER_VALUE = 0xFFFFFFFFu;
    TIMER_CTRL = 1u;
    serve();
}

static void halt(void)
{
    for (;;) {
    }
}

extern uint32_t stack_top;
const void *const vectors[16] __attribute__((section(".vectors"), used)) = {&stack_top, (void *)reset_handler, (void *)halt,
                                                                            (void *)halt};

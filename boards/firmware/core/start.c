/* start.c: from reset to main(), for every Cortex-M7 image: FPU, stack paint, .data, .bss.
 * The machine appends its interrupts to the vectors (section .interrupt_vectors) and enables them in board_start().
 */
#include "board.h"
#include "cortex_m7.h"
#include "fault.h"

extern uint32_t _vectors[], _stack_limit[], _stack_top[], _data_image[], _data_start[], _data_end[], _bss_start[],
    _bss_end[];

#define STACK_PAINT 0xA5A5A5A5u
#define PAINT_MARGIN_WORDS 16u /* below the stack pointer: what this function itself may still push */

int main(void);
_Noreturn void Reset_Handler(void);

static void paint_stack(void)
{
    uint32_t *stack_pointer;
    __asm volatile("mov %0, sp" : "=r"(stack_pointer));
    for (volatile uint32_t *word = _stack_limit; word < stack_pointer - PAINT_MARGIN_WORDS; word++) {
        *word = STACK_PAINT;
    }
}

_Noreturn void Reset_Handler(void)
{
    SCB_VTOR = (uint32_t)_vectors;
    SCB_CPACR |= SCB_CPACR_CP10_CP11_FULL;
    barrier();
    paint_stack();
    const uint32_t *image = _data_image;
    for (volatile uint32_t *word = _data_start; word < _data_end; word++) {
        *word = *image++;
    }
    for (volatile uint32_t *word = _bss_start; word < _bss_end; word++) {
        *word = 0;
    }
    board_start();
    (void)main();
    board_reset();
}

uint32_t board_stack_high_water_bytes(void)
{
    const volatile uint32_t *word = _stack_limit;
    while (word < _stack_top && *word == STACK_PAINT) {
        word++;
    }
    return (uint32_t)(_stack_top - word) * (uint32_t)sizeof(uint32_t);
}

uint32_t board_stack_bytes(void)
{
    return (uint32_t)(_stack_top - _stack_limit) * (uint32_t)sizeof(uint32_t);
}

union vector {
    const uint32_t *stack;
    void (*handler)(void);
};

/* DDI 0403, vector table: initial stack pointer, reset, NMI, HardFault, MemManage, BusFault, UsageFault, 4 reserved,
 * SVCall, DebugMonitor, reserved, PendSV, SysTick. */
__attribute__((section(".vectors"), used)) static const union vector vectors[16] = {
    [0] = {.stack = _stack_top},       [1] = {.handler = Reset_Handler},  [2] = {.handler = nmi_handler},
    [3] = {.handler = fault_handler},  [4] = {.handler = fault_handler},  [5] = {.handler = fault_handler},
    [6] = {.handler = fault_handler},  [11] = {.handler = fault_handler}, [12] = {.handler = fault_handler},
    [14] = {.handler = fault_handler}, [15] = {.handler = fault_handler},
};

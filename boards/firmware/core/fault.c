/* fault.c: see fault.h. The handler takes a fresh stack, because the old one may be what failed; program counter and
 * link register are read from the exception frame before that, as the fresh stack overwrites it.
 */
#include "fault.h"

#include "board.h"
#include "cortex_m7.h"
#include "text.h"

_Noreturn void fault_report(uint32_t pc, uint32_t lr);

/* DDI 0403, exception entry: the frame is r0-r3, r12, lr, pc, xpsr: 32 bytes, lr at 20, pc at 24. */
__attribute__((naked)) void fault_handler(void)
{
    __asm volatile("mov r0, sp\n\t"
                   "movw r1, #:lower16:_stack_limit\n\t"
                   "movt r1, #:upper16:_stack_limit\n\t"
                   "movw r2, #:lower16:_stack_top\n\t"
                   "movt r2, #:upper16:_stack_top\n\t"
                   "mov sp, r2\n\t"
                   "sub r2, r2, #32\n\t"
                   "cmp r0, r1\n\t"
                   "blo 1f\n\t"
                   "cmp r0, r2\n\t"
                   "bhi 1f\n\t"
                   "ldr r1, [r0, #20]\n\t"
                   "ldr r0, [r0, #24]\n\t"
                   "b fault_report\n\t"
                   "1: mvn r0, #0\n\t"
                   "mov r1, r0\n\t"
                   "b fault_report\n\t");
}

void nmi_handler(void) __attribute__((weak, alias("fault_handler")));

static const char NAMES[][8] = {" CFSR=", " HFSR=", " MMFAR=", " BFAR=", " PC=", " LR="};

__attribute__((used)) _Noreturn void fault_report(uint32_t pc, uint32_t lr)
{
    const uint32_t values[] = {SCB_CFSR, SCB_HFSR, SCB_MMFAR, SCB_BFAR, pc, lr};
    text_put("\r\ne-[Fault:"); /* the fault may have cut a line in two */
    for (uint32_t index = 0; index < sizeof values / sizeof values[0]; index++) {
        text_put(NAMES[index]);
        text_put_hex32(values[index]);
    }
    text_put("]\r\n");
    board_reset();
}

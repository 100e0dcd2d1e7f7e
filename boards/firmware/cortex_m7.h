/* cortex_m7.h: the core's own registers that we touch, with the names of the Armv7-M architecture reference manual
 * (DDI 0403, system control space, caches, DWT).
 */
#ifndef CORTEX_M7_H
#define CORTEX_M7_H

#include <stdint.h>

#define REGISTER(address) (*(volatile uint32_t *)(address))

#define DWT_CTRL REGISTER(0xE0001000u)
#define DWT_CTRL_CYCCNTENA (1u << 0)
#define DWT_CYCCNT REGISTER(0xE0001004u)
#define DWT_LAR REGISTER(0xE0001FB0u)
#define DWT_LAR_KEY 0xC5ACCE55u /* CoreSight lock access key; the M7's DWT is locked after reset */

#define SCB_VTOR REGISTER(0xE000ED08u)
#define SCB_AIRCR REGISTER(0xE000ED0Cu)
#define SCB_AIRCR_VECTKEY (0x05FAu << 16)
#define SCB_AIRCR_PRIGROUP_MASK (7u << 8)
#define SCB_AIRCR_SYSRESETREQ (1u << 2)
#define SCB_CCR REGISTER(0xE000ED14u)
#define SCB_CCR_IC (1u << 17)
#define SCB_CCR_DC (1u << 16)
#define SCB_CFSR REGISTER(0xE000ED28u)
#define SCB_HFSR REGISTER(0xE000ED2Cu)
#define SCB_MMFAR REGISTER(0xE000ED34u)
#define SCB_BFAR REGISTER(0xE000ED38u)
#define SCB_CCSIDR REGISTER(0xE000ED80u)
#define SCB_CSSELR REGISTER(0xE000ED84u)
#define SCB_CPACR REGISTER(0xE000ED88u)
#define SCB_CPACR_CP10_CP11_FULL (0xFu << 20)
#define SCB_DEMCR REGISTER(0xE000EDFCu)
#define SCB_DEMCR_TRCENA (1u << 24)
#define SCB_ICIALLU REGISTER(0xE000EF50u)
#define SCB_DCISW REGISTER(0xE000EF60u)

static inline void barrier(void)
{
    __asm volatile("dsb\n\tisb" ::: "memory");
}

#endif

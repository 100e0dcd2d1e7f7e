/* cortex_m7.h: the core's own registers that we touch, with the names of the Armv7-M architecture reference manual
 * (DDI 0403, system control space, NVIC, MPU, caches, DWT).
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

#define NVIC_ISER(interrupt) REGISTER(0xE000E100u + 4u * ((interrupt) / 32u))
#define NVIC_BIT(interrupt) (1u << ((interrupt) % 32u))

#define SCB_CPUID REGISTER(0xE000ED00u)
#define SCB_VTOR REGISTER(0xE000ED08u)
#define SCB_AIRCR REGISTER(0xE000ED0Cu)
#define SCB_AIRCR_VECTKEY (0x05FAu << 16)
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
#define MPU_TYPE REGISTER(0xE000ED90u)
#define MPU_CTRL REGISTER(0xE000ED94u)
#define MPU_CTRL_ENABLE (1u << 0)
#define MPU_RNR REGISTER(0xE000ED98u)
#define MPU_RBAR REGISTER(0xE000ED9Cu)
#define MPU_RASR REGISTER(0xE000EDA0u)
#define MPU_RASR_XN (1u << 28)
#define MPU_RASR_AP_FULL (3u << 24)
#define MPU_RASR_AP_READ_ONLY (6u << 24)
#define MPU_RASR_TEX_1 (1u << 19)
#define MPU_RASR_S (1u << 18)
#define MPU_RASR_C (1u << 17)
#define MPU_RASR_B (1u << 16)
#define MPU_RASR_ENABLE (1u << 0)
#define SCB_DEMCR REGISTER(0xE000EDFCu)
#define SCB_DEMCR_TRCENA (1u << 24)
#define SCB_ICIALLU REGISTER(0xE000EF50u)
#define SCB_DCISW REGISTER(0xE000EF60u)

static inline void barrier(void)
{
    __asm volatile("dsb\n\tisb" ::: "memory");
}

#endif

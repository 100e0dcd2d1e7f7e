/* chip_f7.c: RM0385 and RM0410: debug support, flash option bytes (3.4), device electronic signature. */
#include "chip.h"
#include "wiring.h"

#ifdef STM32_F7

const struct chip_entry CHIP_ENTRIES[] = {
    {"CPUID", 0xE000ED00u},      {"DBGMCU_IDCODE", 0xE0042000u}, {"FLASH_OPTCR", 0x40023C14u},
    {"FLASH_OPTCR1", 0x40023C18u}, {"FLASH_ACR", 0x40023C00u},   {"RCC_CR", 0x40023800u},
    {"RCC_PLLCFGR", 0x40023804u}, {"RCC_CFGR", 0x40023808u},     {"PWR_CR1", 0x40007000u},
    {"PWR_CSR1", 0x40007004u},   {"SCB_CCR", 0xE000ED14u},       {"MPU_CTRL", 0xE000ED94u},
};
const uint32_t CHIP_ENTRY_COUNT = sizeof CHIP_ENTRIES / sizeof CHIP_ENTRIES[0];
const struct chip_entry CHIP_FLASH_SIZE = {"FLASH_SIZE", 0x1FF0F440u};
const uint32_t CHIP_FLASH_SIZE_SHIFT = 16; /* the upper half of its word */

#endif

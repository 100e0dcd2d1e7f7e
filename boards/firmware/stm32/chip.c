#include "chip.h"

#include "cortex_m7.h"
#include "counter.h"

static uint32_t flash_kib;

void chip_read(void)
{
    flash_kib = (REGISTER(CHIP_FLASH_SIZE.address) >> CHIP_FLASH_SIZE_SHIFT) & 0xFFFFu;
}

bool chip_register(uint32_t index, struct board_register *found)
{
    if (index < CHIP_ENTRY_COUNT) {
        *found = (struct board_register){CHIP_ENTRIES[index].name, REGISTER(CHIP_ENTRIES[index].address)};
    } else if (index == CHIP_ENTRY_COUNT) {
        *found = (struct board_register){CHIP_FLASH_SIZE.name, flash_kib};
    } else if (index == CHIP_ENTRY_COUNT + 1u) {
        *found = (struct board_register){"COUNTER_RESTARTS", counter_restarts()};
    } else {
        return false;
    }
    return true;
}

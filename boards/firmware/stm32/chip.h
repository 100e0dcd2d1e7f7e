/* chip.h: who the chip is and how it is set up, for board_chip(): each family's chip_*.c lists its registers. */
#ifndef CHIP_H
#define CHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "board.h"

struct chip_entry {
    const char *name; /* the reference manual's */
    uint32_t address;
};

extern const struct chip_entry CHIP_ENTRIES[];
extern const uint32_t CHIP_ENTRY_COUNT;

/* Where the flash size in KB stands, and by how many bits to shift it down (data sheet, device electronic signature). */
extern const struct chip_entry CHIP_FLASH_SIZE;
extern const uint32_t CHIP_FLASH_SIZE_SHIFT;

/* What lies in system memory, which the MPU closes. */
void chip_read(void);

bool chip_register(uint32_t index, struct board_register *found);

#endif

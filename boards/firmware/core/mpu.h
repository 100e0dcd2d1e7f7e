/* mpu.h: what each part of the address space may be used for. What no region covers may not be touched at all, null
 * pointers included; the core's own registers (0xE0000000) are always reachable.
 */
#ifndef MPU_H
#define MPU_H

#include <stdint.h>

enum mpu_use {
    MPU_NOTHING,      /* a guard */
    MPU_READ_EXECUTE, /* flash; write-through, as without an MPU */
    MPU_READ_WRITE,   /* RAM; write-back, as without an MPU; never executed */
    MPU_DEVICE,       /* peripherals: in order, never cached, never executed */
};

struct mpu_region {
    const void *base; /* a multiple of the size */
    uint32_t size_log2;
    enum mpu_use use;
    uint32_t eighths_off; /* a bit for each eighth of the region that is left out, the lowest address first */
};

/* Set up and switch on; where regions overlap the later one wins. At most eight, which every Cortex-M7 here has. */
void mpu_start(const struct mpu_region *regions, uint32_t count);

#endif

/* mpu.c: Armv7-M architecture reference manual (DDI 0403), B3.5 Protected Memory System Architecture, PMSAv7.
 *
 * A violation escalates to HardFault (SHCSR.MEMFAULTENA stays off), and with HFNMIENA off the MPU does not apply there:
 * the handler can always report.
 */
#include "mpu.h"

#include "cortex_m7.h"

static uint32_t attributes(enum mpu_use use)
{
    switch (use) {
    case MPU_READ_EXECUTE:
        return MPU_RASR_AP_READ_ONLY | MPU_RASR_C;
    case MPU_READ_WRITE:
        return MPU_RASR_XN | MPU_RASR_AP_FULL | MPU_RASR_TEX_1 | MPU_RASR_C | MPU_RASR_B;
    case MPU_DEVICE:
        return MPU_RASR_XN | MPU_RASR_AP_FULL | MPU_RASR_S | MPU_RASR_B;
    case MPU_NOTHING:
    default:
        return MPU_RASR_XN;
    }
}

void mpu_start(const struct mpu_region *regions, uint32_t count)
{
    const uint32_t available = (MPU_TYPE >> 8) & 0xFFu;
    barrier();
    MPU_CTRL = 0;
    for (uint32_t index = 0; index < available; index++) {
        MPU_RNR = index;
        if (index >= count) {
            MPU_RASR = 0;
            continue;
        }
        const struct mpu_region *region = &regions[index];
        MPU_RBAR = (uint32_t)region->base;
        MPU_RASR =
            attributes(region->use) | (region->eighths_off << 8) | ((region->size_log2 - 1u) << 1) | MPU_RASR_ENABLE;
    }
    MPU_CTRL = MPU_CTRL_ENABLE;
    barrier();
}

/* placement.h: large buffers that are not cleared at start-up, and the region they go to (sections.ld). */
#ifndef PLACEMENT_H
#define PLACEMENT_H

#define PLACE_FAST __attribute__((section(".fast"), aligned(32))) /* single-cycle memory where the board has some */
#define PLACE_BULK __attribute__((section(".bulk"), aligned(32))) /* the largest RAM */

#endif

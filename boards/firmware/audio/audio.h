/* audio.h: the samples that the host loads: little-endian int16, at the rate of the data set. */
#ifndef AUDIO_H
#define AUDIO_H

#include "front_end.h"
#include "load.h"

/* Known by name to a debug probe, which may write it directly (`audio place`). Samples not loaded are zero. */
extern int16_t audio_buffer[FRONT_END_CLIP_SAMPLES];
extern struct load audio_load;

/* All samples zero, no load under way; before anything else here. */
void audio_clear(void);

#endif

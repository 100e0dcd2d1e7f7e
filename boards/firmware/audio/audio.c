#include "audio.h"

#include "placement.h"

int16_t audio_buffer[FRONT_END_CLIP_SAMPLES] PLACE_BULK;
struct load audio_load;

void audio_clear(void)
{
    audio_load = (struct load){.bytes = (uint8_t *)audio_buffer, .room = sizeof audio_buffer};
    load_clear(&audio_load);
}

/* stream.h: words in audio without end, hop by hop.
 *
 * Every hop adds a frame of features to the newest FRONT_END_FRAMES; every STREAM_RUN_HOPS hops the network looks at
 * them, once there are enough. Its outputs, counted from 0 to 255, are summed over the last STREAM_SMOOTH_RUNS runs
 * (runs before the first count as 0). The class with the largest sum, the first of equals, is detected if it is a word,
 * its sum reaches STREAM_THRESHOLD_SUM and STREAM_REFRACTORY_HOPS hops have passed since the last detection. Features
 * apart, all of it is integer arithmetic: stages/measure/audio/stream_reference.py gives the same numbers.
 */
#ifndef STREAM_H
#define STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "front_end.h"
#include "model.h"

struct stream_detection {
    uint32_t hop; /* hops heard, this one included */
    uint32_t word;
    uint32_t sum;
};

enum stream_event {
    STREAM_WAITS,   /* for more samples: the hop is not whole */
    STREAM_FRAME,   /* the hop only added a frame */
    STREAM_RUN,     /* and the network ran: stream_sums() is new */
    STREAM_DETECTED /* and found a word */
};

/* Forget all audio. */
void stream_start(void);

/* Take samples up to the end of a hop (at first: of a window), at most `count`; *taken says how many. */
enum stream_event stream_hear(const int16_t *samples, uint32_t count, uint32_t *taken,
                              struct stream_detection *detection);

/* Frames and detections so far; the newest frame; the sums after the last run, MODEL_OUTPUT_BYTES long. */
uint32_t stream_hops(void);
uint32_t stream_detections(void);
const int8_t *stream_newest_frame(void);
const uint32_t *stream_sums(void);

#endif

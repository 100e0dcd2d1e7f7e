#include "tensor.h"

#include <stdbool.h>
#include <string.h>

#include "bench.h"
#include "crc32.h"
#include "prof.h"
#include "text.h"

static uint32_t wanted;
static bool wants_bytes;

void tensor_show(void)
{
    const struct tensor_place *place = &TENSOR_PLACES[wanted];
    const uint8_t *bytes = (const uint8_t *)place->first;
    if (wants_bytes) {
        command_put_hex("m-tensor-[", bytes, place->bytes);
        return;
    }
    text_put("m-tensor-[");
    text_put_decimal(wanted);
    text_put(",");
    text_put_decimal(place->bytes);
    text_put(",");
    text_put_hex32(crc32(bytes, place->bytes));
    text_put("]\r\n");
}

void tensor_run(const struct words *words)
{
    if (words->count < 2u || !command_decimal(words->at[1], &wanted) || wanted >= MODEL_OPS) {
        command_put_error("tensor needs the number of an operator", "");
        return;
    }
    wants_bytes = words->count == 3u;
    if (wants_bytes && strcmp(words->at[2], "hex") != 0) {
        command_put_error("Unexpected argument: ", words->at[2]);
        return;
    }
    prof_observe(wanted + 1u);
    bench_infer(1);
    prof_stop();
}

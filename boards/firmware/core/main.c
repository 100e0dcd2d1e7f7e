/* main.c: answer the host, for ever. */
#include "baud.h"
#include "board.h"
#include "protocol.h"
#include "ring.h"

int main(void)
{
    protocol_boot();
    for (;;) {
        board_alive();
        if (baud_fall_back()) {
            protocol_forget_line();
        }
        const uint16_t received = board_take();
        if (received != RING_EMPTY) {
            protocol_receive(received);
        }
    }
}

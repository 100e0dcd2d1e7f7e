/* main.c: answer the host, for ever. */
#include "board.h"
#include "protocol.h"

int main(void)
{
    protocol_boot();
    for (;;) {
        protocol_receive(board_get());
    }
}

#include "baud.h"

#include "board.h"

static uint32_t current;
static uint32_t requested; /* 0: none */
static uint32_t confirmed; /* what to go back to */
static uint64_t changed_ticks;

uint32_t baud_divider(uint32_t clock_hz, uint32_t baud)
{
    return baud == 0u ? 0u : (clock_hz + baud / 2u) / baud;
}

bool baud_is_near(uint32_t clock_hz, uint32_t divider, uint32_t baud)
{
    const uint32_t reached = clock_hz / divider;
    const uint32_t error = reached > baud ? reached - baud : baud - reached;
    return error <= baud / (100u / BAUD_MOST_ERROR_PERCENT);
}

void baud_start(void)
{
    current = board_first_baud();
    confirmed = current;
    requested = 0;
}

uint32_t baud_now(void)
{
    return current;
}

void baud_confirm(void)
{
    confirmed = current;
}

void baud_request(uint32_t baud)
{
    baud_confirm();
    requested = baud == current ? 0u : baud;
}

void baud_change(void)
{
    if (requested == 0u) {
        return;
    }
    board_set_baud(requested);
    current = requested;
    requested = 0;
    changed_ticks = board_ticks();
}

bool baud_fall_back(void)
{
    if (current == confirmed) {
        return false;
    }
    if (board_ticks() - changed_ticks < (uint64_t)BAUD_CONFIRM_S * board_clock_hz()) {
        return false;
    }
    board_set_baud(confirmed);
    current = confirmed;
    return true;
}

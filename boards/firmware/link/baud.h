/* baud.h: another serial rate on request, and back if the host does not follow.
 *
 *     host, old rate    baud 921600%
 *     device            m-baud-[921600], m-ready; when they have left, the new rate
 *     host, new rate    baud ok%                    within BAUD_CONFIRM_S
 *     device            m-ready; the rate stays
 *
 * Without the second command the device goes back to the old rate, silently. Asking again for the rate in use confirms
 * it as well. A reset returns to the first rate.
 */
#ifndef BAUD_H
#define BAUD_H

#include <stdbool.h>
#include <stdint.h>

#define BAUD_CONFIRM_S 1u
#define BAUD_MOST_ERROR_PERCENT 2u

/* What a UART's clock is to be divided by, and whether that comes near enough to the rate. */
uint32_t baud_divider(uint32_t clock_hz, uint32_t baud);
bool baud_is_near(uint32_t clock_hz, uint32_t divider, uint32_t baud);

/* At the first rate, nothing to confirm. */
void baud_start(void);

uint32_t baud_now(void);

/* The host has followed to the rate in use. */
void baud_confirm(void);

/* Ask for a rate that board_can_baud(); also confirms the one in use, at which the request came. */
void baud_request(uint32_t baud);

/* After `m-ready`: change over if that was requested. */
void baud_change(void);

/* Go back if the time for confirmation is over; true if so. */
bool baud_fall_back(void);

#endif

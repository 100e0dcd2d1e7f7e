/* fault.h: what happens when the core faults: one line with the fault registers goes to the host, then a reset.
 *
 *     e-[Fault: CFSR=00008200 HFSR=40000000 MMFAR=90000000 BFAR=90000000 PC=08000456 LR=08000123]
 *
 * PC and LR are ffffffff when the exception frame does not lie in the stack (its overflow, for instance).
 */
#ifndef FAULT_H
#define FAULT_H

void fault_handler(void);

/* The same unless the machine has a use for the non-maskable interrupt. */
void nmi_handler(void);

#endif

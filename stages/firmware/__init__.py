"""An int8 network -> images for a board and its twin: C and assembly for its operators, linked with the firmware.

kernels/    an operator as a call of a portable C kernel; fused chains; the order in which kernels read and write
assembly/   inner loops for the Cortex-M7: instructions, their schedule, the functions
fast/       an operator as a call of a kernel that runs on these loops: packed weights, exact requantisation
build/      sources to images: the compiler, what is linked
memory/     what lies in which region, bytes of flash and RAM, depth of the stack

Beside them: model_source.py (model.c, model.h, model.S), fused_model.py (which chains are fused), front_end*.py (MFCC).
"""

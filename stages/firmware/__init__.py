"""An int8 network -> C and assembly, and with the firmware around them images for a board and its twin."""

"""Bytes of a serial port -> commands and typed replies of the firmware."""

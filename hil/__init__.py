"""Hardware in the loop: the serial link, board discovery, flashers, and the virtual bench.

Import the module that is needed (`hil.link`, `hil.discovery`, `hil.flasher`, `hil.virtual.twin`, ...): this file
imports none of them, because the engine asks `hil.discovery` for boards at every start and must not pay for the rest.
"""

__all__ = [
    "audio",
    "bench",
    "dialogue",
    "discovery",
    "drive",
    "energy_run",
    "fake_device",
    "faulty_line",
    "flasher",
    "instruments",
    "inventory",
    "line_port",
    "link",
    "locks",
    "probes",
    "replies",
    "stock_device",
    "virtual",
]

"""Hardware in the loop: the serial link, boards and instruments on a bench, and the virtual bench.

Import the module that is needed (`hil.link.device_link`, `hil.bench.discovery`, `hil.virtual.twin`, ...): this file
imports none of them, because the engine asks for boards at every start and must not pay for the rest.
"""

__all__ = ["bench", "fakes", "instruments", "link", "virtual"]

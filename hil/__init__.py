"""Hardware in the loop: boards, instruments and twins -> replies, joules and cycles.

Import the module that is needed (`hil.link.device_link`, `hil.bench.discovery`, `hil.virtual.twin`, ...): this file
imports none of them, because the engine asks for boards at every start and must not pay for the rest.
"""

__all__ = ["bench", "fakes", "instruments", "link", "virtual"]

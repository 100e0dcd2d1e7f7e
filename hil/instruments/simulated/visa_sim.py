"""A recorded session with a simulated instrument as a pyvisa-sim definition, for `ResourceManager("FILE.yaml@sim")`.

pyvisa-sim answers each query with one fixed reply and knows no binary data: the definition holds the last reply to
each command of a session in ASCII (`data_format="ascii"` of the drivers), and replays captures of that one kind. What
it proves is that the drivers run on a VISA library that is not ours; faults and timing belong to `scpi_server.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from hil.instruments.simulated.scpi_server import ScpiDevice


def write_definition(path: Path, devices: Mapping[str, ScpiDevice]) -> Path:
    """What the devices were asked and answered so far, by VISA address (`TCPIP::name::5025::SOCKET`)."""
    entries = {}
    for address, device in devices.items():
        dialogues = [
            {"q": command, "r": reply.decode("ascii").rstrip("\n")} if reply else {"q": command}
            for command, reply in device.transcript.items()
        ]
        entries[address] = {
            "eom": {"TCPIP SOCKET": {"q": "\n", "r": "\n"}},
            "error": "ERROR",
            "dialogues": dialogues,
        }
    resources = {address: {"device": address} for address in devices}
    path.write_text(yaml.safe_dump({"spec": "1.0", "devices": entries, "resources": resources}, width=1 << 30))
    return path

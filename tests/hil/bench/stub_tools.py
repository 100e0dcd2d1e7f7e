"""Stand-ins for pyOCD and OpenOCD: they parse their own command lines, find probes by serial number and write "flash".

`BENCH.json` beside them says which probes exist: {serial: {"target": ..., "config": ..., "shut": bool}}. One that is
shut answers under reset only. What is flashed lands in SERIAL.flash. Words and exit codes are those of pyOCD 0.46 and
OpenOCD 0.12 (both were run without a probe to see them).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

PYTHON = sys.executable  # tests point sys.executable elsewhere, to hide a pyOCD beside it

_PYOCD = """#!{python}
import argparse, json, pathlib, sys
here = pathlib.Path(__file__).parent
bench = json.loads((here / "BENCH.json").read_text())
parser = argparse.ArgumentParser(prog="pyocd")
commands = parser.add_subparsers(dest="command", required=True)
flash = commands.add_parser("flash")
flash.add_argument("--no-config", action="store_true")
flash.add_argument("-W", "--no-wait", action="store_true")
flash.add_argument("-u", "--uid", required=True)
flash.add_argument("-t", "--target")
flash.add_argument("-M", "--connect", default="halt", choices=["halt", "pre-reset", "under-reset", "attach"])
flash.add_argument("file", type=pathlib.Path)
listing = commands.add_parser("json")
listing.add_argument("-p", "--probes", action="store_true")
listing.add_argument("--no-config", action="store_true")
given = parser.parse_args()
(here / "pyocd.arguments").write_text("\\n".join(sys.argv[1:]))
if given.command == "json":
    entries = [
        dict(unique_id=serial, info="STM32 STLink", board_vendor=None, board_name=one["name"], target=one["target"],
             vendor_name="STMicroelectronics", product_name="STM32 STLink")
        for serial, one in bench.items()
    ]
    print(json.dumps(dict(pyocd_version="0.46.0", version=dict(major=1, minor=1), status=0, boards=entries), indent=4))
    sys.exit(0)
matching = [serial for serial in bench if given.uid.lower() in serial.lower()]
if len(matching) != 1:
    print("No connected debug probe matches unique ID '" + given.uid + "'")
    sys.exit("0000589 E No target device available [load_cmd]")
found = bench[matching[0]]
if found["shut"] and given.connect != "under-reset":
    sys.exit("0001022 C Memory transfer fault @ 0xe000ed00 [__main__]")
if found["target"] != given.target:
    sys.exit("0000600 C Target type " + str(given.target) + " not recognized. [__main__]")
(here / (matching[0] + ".flash")).write_bytes(given.file.read_bytes())
"""

_OPENOCD = """#!{python}
import json, pathlib, re, sys
here = pathlib.Path(__file__).parent
bench = json.loads((here / "BENCH.json").read_text())
(here / "openocd.arguments").write_text("\\n".join(sys.argv[1:]))
words, config, serial, held = sys.argv[1:], None, None, False
while words:
    flag, text, words = words[0], words[1], words[2:]
    if flag == "-f":
        config = text
    elif text.startswith("adapter serial "):
        serial = text.split(" ", 2)[2]
    elif "connect_assert_srst" in text:
        held = True
    elif match := re.fullmatch(r"program \\{{(.*)\\}} verify reset exit", text):
        found = bench.get(serial)
        if found is None or found["config"] != config or (found["shut"] and not held):
            sys.exit("Error: open failed\\nin procedure 'program'\\n** OpenOCD init failed **")
        (here / (serial + ".flash")).write_bytes(pathlib.Path(match[1]).read_bytes())
        sys.stderr.write("** Programming Finished **\\n** Verified OK **\\n** Resetting Target **\\n")
    else:
        sys.exit("invalid command name " + text)
"""


def put_tools(folder: Path, bench: dict[str, dict[str, object]], *names: str) -> None:
    """Write the named stand-ins and their bench into a folder for the PATH."""
    whole = {serial: {"shut": False, "name": "NUCLEO-F767ZI", **one} for serial, one in bench.items()}
    (folder / "BENCH.json").write_text(json.dumps(whole))
    for name in names:
        program = folder / name
        program.write_text({"pyocd": _PYOCD, "openocd": _OPENOCD}[name].format(python=PYTHON))
        program.chmod(0o755)


def put_failing_tool(folder: Path, name: str, exit_code: int) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\necho no probe >&2\nexit {exit_code}\n")
    program.chmod(0o755)

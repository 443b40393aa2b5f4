#!/usr/bin/env python3
"""test-programs.py NAME...: cargo's build messages on standard input, one line for each test program on standard output.

A line is "name<TAB>package folder<TAB>executable". The named ones come first, in that order. A crate's own unit tests are
called `lib` or `bin`; everything else by its file in tests/.
"""

import json
import os
import sys


def main() -> None:
    """Prints the lines."""
    order = {name: number for number, name in enumerate(sys.argv[1:])}
    programs = []
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message["profile"]["test"]:
            continue
        if message["executable"] is None:
            continue
        target = message["target"]
        kind = target["kind"][0]
        name = target["name"] if kind == "test" else kind
        programs.append((order.get(name, len(order)), name, os.path.dirname(message["manifest_path"]), message["executable"]))
    for _, *fields in sorted(programs):
        print("\t".join(fields))


main()

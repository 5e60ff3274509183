"""The console as a child process: settings as JSON in its argument, its address on stdout.

It lives for as long as its stdin is open, so that it ends with the process that started it,
however that ends.
"""

import json
import os
import signal
import sys
import threading

from ottla.console.server import serve
from ottla.console.settings import ConsoleSettings


def main() -> None:
    settings = ConsoleSettings(**json.loads(sys.argv[1]))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        serve(settings, lambda address: print(json.dumps({"address": address}), flush=True))
    except OSError as error:
        print(json.dumps({"error": error.strerror or str(error)}), flush=True)


def _end_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()

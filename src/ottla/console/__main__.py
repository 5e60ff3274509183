"""The console as a child of `ottla up`: a listening socket by number, settings on stdin.

It lives for as long as its stdin is open, so that it ends with the process that started it,
however that ends.
"""

import json
import os
import signal
import socket
import sys
import threading

from ottla.console.server import serve_on
from ottla.console.settings import ConsoleSettings
from ottla.console.web.app import create_app


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    settings = ConsoleSettings(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    serve_on(listener, create_app(settings))


def _end_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()

"""Serve a folder with the headers that let pages share memory with workers, for WebAssembly with threads.

    python serve.py [FOLDER] [--port 8000]

Any server does that sends these headers, over https or from this machine; without them there is one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cache-Control": "no-cache",
}


class Isolated(SimpleHTTPRequestHandler):
    """Files with the headers; modules compile while they arrive if they have their own type."""

    extensions_map = {  # noqa: RUF012
        **SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def end_headers(self) -> None:
        """Add the headers."""
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()


def server(folder: Path, port: int) -> ThreadingHTTPServer:
    """A server of `folder` on this machine; port 0 is any that is free."""
    return ThreadingHTTPServer(("127.0.0.1", port), functools.partial(Isolated, directory=str(folder)))


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("site"))
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        parser.error(f"no folder {arguments.folder}: python build.py {arguments.folder} makes it")
    try:
        serving = server(arguments.folder, arguments.port)
    except (OSError, OverflowError) as error:
        parser.error(f"port {arguments.port}: {error}; say another one with --port, or --port 0 for any that is free")
    with serving, contextlib.suppress(KeyboardInterrupt):
        print(f"http://127.0.0.1:{serving.server_port}/", flush=True)
        serving.serve_forever()


if __name__ == "__main__":
    main()

"""A plain web server in threads, which replies as a test says."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Reply = tuple[int, str | bytes, dict[str, str]]


@contextmanager
def answering(reply: Callable[[str, Message, bytes], Reply | None]) -> Iterator[str]:
    """Its URL. reply: path, headers, body ("" of a GET) → status, body, headers; None
    hangs until the end. A body may be shorter than its Content-Length says."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            made = reply(self.path, self.headers, asked)
            if made is None:
                over.wait()
                return
            status, body, headers = made
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode() if isinstance(body, str) else body)

        do_POST = do_GET

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()

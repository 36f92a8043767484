"""A small application for the end-to-end checks: what nginx alone cannot be made to do.

Usage: app.py PORT
"""
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

lock = threading.Lock()
counts = {"get": 0, "post": 0}


def count(kind):
    with lock:
        counts[kind] += 1
        return counts[kind]


class App(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def plain(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def chunk(self, text):
        body = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
        self.wfile.flush()

    def stream(self, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        if kind == "text/plain":
            self.send_header("Trailer", "X-Sum")
        self.end_headers()

    def do_GET(self):
        if self.path == "/app/chunked":
            self.stream("text/plain")
            for text in "abc", "def":
                self.chunk(text)
            self.wfile.write(b"0\r\nX-Sum: 6\r\n\r\n")
        elif self.path == "/app/events":
            self.stream("text/event-stream")
            try:
                for i in range(1, 20):
                    self.chunk(f"data: {i}\n\n")
                    time.sleep(1)
                self.wfile.write(b"0\r\n\r\n")
            except OSError:  # the client has seen enough
                self.close_connection = True
        elif self.path == "/app/flaky":
            self.plain(503 if count("get") % 3 else 200, "fine")
        elif self.path == "/app/slow":
            time.sleep(2)
            self.plain(200, "slow")
        elif self.path == "/app/count-post":
            self.plain(200, str(counts["post"]))
        else:
            self.plain(200, "here")

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        count("post")
        self.plain(503, "not now")

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), App).serve_forever()

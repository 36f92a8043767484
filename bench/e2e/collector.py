"""An OTLP/HTTP collector that writes what it gets to a file, as it came. Prints its URL.

Usage: collector.py FILE
"""
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Collector(BaseHTTPRequestHandler):
    def do_POST(self):
        with open(sys.argv[1], "ab") as out:
            out.write(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Collector)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()

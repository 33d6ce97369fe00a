"""An S3 server in memory whose refusals can be switched. Usage: bucket.py PORT

It knows GET with ranges, HEAD, PUT with `If-None-Match: *`, DELETE and ListObjectsV2, path-style,
in whatever bucket is named; nobody's signature is checked. POST /none, /writes or /all: from then on
503 SlowDown is the answer to nothing, to PUT and DELETE, to every request.
"""
import bisect
import email.utils
import hashlib
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

PAGE = 1000
REFUSED = {"none": (), "writes": ("PUT", "DELETE"), "all": ("GET", "HEAD", "PUT", "DELETE")}


class Bucket:
    """Objects by path, and the paths in order for listings."""

    def __init__(self):
        self.lock, self.objects, self.order, self.refuse = threading.Lock(), {}, [], "none"

    def put(self, path, body, only_new):
        with self.lock:
            if path in self.objects:
                if only_new:
                    return False
            else:
                bisect.insort(self.order, path)
            self.objects[path] = (body, time.time(), f'"{hashlib.md5(body).hexdigest()}"')
            return True

    def delete(self, path):
        with self.lock:
            if self.objects.pop(path, None):
                self.order.pop(bisect.bisect_left(self.order, path))

    def list(self, prefix, after, limit):
        with self.lock:
            at = max(bisect.bisect_left(self.order, prefix), bisect.bisect_right(self.order, after))
            paths = self.order[at:at + limit]
            return [(p, *self.objects[p]) for p in paths if p.startswith(prefix)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one segment
    bucket = Bucket()

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", length=None, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def error(self, status, code):
        body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        self.answer(status, b"" if self.command == "HEAD" else body, Content_Type="application/xml")

    def asked(self):
        """Path, query and body; None if the request was refused."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.command in REFUSED[self.bucket.refuse]:
            return self.error(503, "SlowDown")
        path, _, query = self.path.partition("?")
        return urllib.parse.unquote(path), dict(urllib.parse.parse_qsl(query)), body

    def do_POST(self):
        mode = self.path.strip("/")
        if mode not in REFUSED:
            return self.error(400, "InvalidArgument")
        self.bucket.refuse = mode
        self.answer(200)

    def do_PUT(self):
        if not (asked := self.asked()):
            return
        path, _, body = asked
        if not self.bucket.put(path, body, self.headers.get("If-None-Match") == "*"):
            return self.error(412, "PreconditionFailed")
        self.answer(200, ETag=self.bucket.objects[path][2])

    def do_DELETE(self):
        if asked := self.asked():
            self.bucket.delete(asked[0])
            self.answer(204)

    def do_GET(self):
        if not (asked := self.asked()):
            return
        path, query, _ = asked
        if "list-type" in query:
            return self.listing(path.strip("/"), query)
        if not (found := self.bucket.objects.get(path)):
            return self.error(404, "NoSuchKey")
        body, modified, tag = found
        about = {"ETag": tag, "Last_Modified": email.utils.formatdate(modified, usegmt=True)}
        if self.command == "HEAD":
            return self.answer(200, length=len(body), **about)
        if not (wanted := self.headers.get("Range")):
            return self.answer(200, body, **about)
        first, last = wanted.removeprefix("bytes=").split("-")
        size = len(body)
        start = int(first) if first else max(size - int(last), 0)
        end = min(int(last) + 1, size) if first and last else size
        if start >= end:
            return self.error(416, "InvalidRange")
        about["Content_Range"] = f"bytes {start}-{end - 1}/{size}"
        self.answer(206, body[start:end], **about)

    do_HEAD = do_GET

    def listing(self, bucket, query):
        inside = f"/{bucket}/"
        after = query.get("continuation-token") or query.get("start-after") or ""
        limit = min(int(query.get("max-keys", PAGE)), PAGE)
        found = self.bucket.list(inside + query.get("prefix", ""), inside + after, limit + 1)
        page, more = found[:limit], len(found) > limit
        iso = "%Y-%m-%dT%H:%M:%S.000Z"
        keys = [p[len(inside):] for p, *_ in page]
        rows = [f"<Contents><Key>{escape(key)}</Key><Size>{len(body)}</Size><ETag>{tag}</ETag>"
                f"<LastModified>{time.strftime(iso, time.gmtime(at))}</LastModified></Contents>"
                for key, (_, body, at, tag) in zip(keys, page)]
        if more:
            rows.append(f"<NextContinuationToken>{escape(keys[-1])}</NextContinuationToken>")
        text = (f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>"
                f"<KeyCount>{len(page)}</KeyCount>{''.join(rows)}</ListBucketResult>")
        self.answer(200, text.encode(), Content_Type="application/xml")


if __name__ == "__main__":
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

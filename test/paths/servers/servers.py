"""Servers that answer with the name of the handler that they ran: those of the frameworks that are installed, and
Python's own. It prints a line for each, "name<TAB>port", for each that is missing "missing: why", and then "ready"."""

import http.server
import posixpath
import sys
import threading
import urllib.parse
import wsgiref.simple_server

NAMES = ["sale", "static", "vip"]


def below(path):
    for name in NAMES:
        if path == "/" + name or path.startswith("/" + name + "/"):
            return name
    return "other"


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *args):
        pass


def start(name, server):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"{name}\t{server.server_address[1]}", flush=True)


def by_wsgi(read):
    def app(environ, respond):
        respond("200 OK", [("Content-Type", "text/plain")])
        return [below(read(environ["PATH_INFO"])).encode()]

    return wsgiref.simple_server.make_server("127.0.0.1", 0, app, handler_class=Quiet)


def by_http(read):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            try:
                text = below(read(self.path)).encode()
            except ValueError:
                self.send_error(400)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args):
            pass

    return http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def flask_servers():
    import logging

    import flask
    import werkzeug.serving

    logging.getLogger("werkzeug").setLevel(logging.ERROR)

    from werkzeug.routing import PathConverter

    class Rest(PathConverter):
        regex = ".*"  # "path" takes none that begins with a slash

    def make(merge):
        app = flask.Flask("paths", static_folder=None)
        app.url_map.merge_slashes = merge
        app.url_map.converters["rest"] = Rest
        for name in NAMES:
            for rule in ("/" + name, "/" + name + "/", "/" + name + "/<rest:rest>"):
                app.add_url_rule(rule, rule, lambda name=name, rest="": name, strict_slashes=False)
        app.add_url_rule("/", "root", lambda: "other")
        app.add_url_rule("/<rest:rest>", "other", lambda rest: "other")
        return werkzeug.serving.make_server("127.0.0.1", 0, app, threaded=True)

    start("Flask", make(True))
    start("Flask, slashes not merged", make(False))

    from werkzeug.wrappers import Request, Response

    @Request.application
    def plain(request):
        return Response(below(request.path))

    start("Werkzeug, request.path", werkzeug.serving.make_server("127.0.0.1", 0, plain, threaded=True))


def django_servers():
    import django
    from django.conf import settings
    from django.core.servers.basehttp import WSGIRequestHandler, WSGIServer
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import path, re_path

    patterns = []
    for name in NAMES:
        view = lambda request, name=name, rest="": HttpResponse(name)  # noqa: E731
        patterns += [path(name, view), path(name + "/", view), path(name + "/<path:rest>", view)]
        patterns += [re_path(f"(?i)^{name}(?:/|$)", view)]
    patterns.append(re_path("^", lambda request: HttpResponse("other")))
    settings.configure(ROOT_URLCONF=tuple(patterns), ALLOWED_HOSTS=["*"], SECRET_KEY="none", MIDDLEWARE=[], APPEND_SLASH=False)
    django.setup()

    class Silent(WSGIRequestHandler):
        def log_message(self, *args):
            pass

    server = WSGIServer(("127.0.0.1", 0), Silent)
    server.set_app(get_wsgi_application())
    start("Django", server)


start("Python, PATH_INFO", by_wsgi(lambda p: p))
start("Python, PATH_INFO resolved", by_wsgi(posixpath.normpath))
start("Python, urlsplit", by_http(lambda p: urllib.parse.unquote(urllib.parse.urlsplit(p).path)))
start("Python, urljoin", by_http(lambda p: urllib.parse.urlsplit(urllib.parse.urljoin("http://shop.test/", p)).path))
start("Python, normpath", by_http(lambda p: posixpath.normpath(urllib.parse.unquote(p.split("?", 1)[0]))))
for make in (flask_servers, django_servers):
    try:
        make()
    except ImportError as e:
        print(f"missing: {e}", flush=True)
print("ready", flush=True)
sys.stdin.read()  # ends with who started it

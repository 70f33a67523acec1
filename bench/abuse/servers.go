package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/bench/child"
	"github.com/anteroom/anteroom/bench/visitor"
)

// target is one server under test, with an origin of its own.
type target struct {
	name   string
	origin *recorder
	addr   string
	pass   string // a header line, or nothing
	stop   func()
}

func launch(ctx context.Context, dir, name, bin, conf, addr string, args ...string) (func(), error) {
	path := filepath.Join(dir, name+".conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		return nil, err
	}
	c, err := child.Start(name, bin, append(args, path)...)
	if err != nil {
		return nil, err
	}
	if err := c.Ready(ctx, addr); err != nil {
		c.Stop()
		return nil, err
	}
	return c.Stop, nil
}

func startNginx(ctx context.Context, dir string, t *target) error {
	bin, err := child.Find("nginx")
	if err != nil {
		return err
	}
	t.stop, err = launch(ctx, dir, t.name, bin, fmt.Sprintf(`daemon off;
pid %[1]s/nginx.pid;
error_log stderr crit;
events { worker_connections 1024; }
http {
  access_log off;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  upstream origin { server %[2]s; keepalive 64; }
  server {
    listen %[3]s;
    location / { proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host; }
  }
}
`, dir, t.origin.addr(), t.addr), t.addr, "-p", dir, "-c")
	return err
}

func startHAProxy(ctx context.Context, dir string, t *target) error {
	bin, err := child.Find("haproxy")
	if err != nil {
		return err
	}
	t.stop, err = launch(ctx, dir, t.name, bin, fmt.Sprintf(`global
  maxconn 1024
defaults
  mode http
  timeout connect 5s
  timeout client 10s
  timeout server 10s
  http-reuse always
frontend front
  bind %s
  default_backend origin
backend origin
  server one %s
`, t.addr, t.origin.addr()), t.addr, "-db", "-f")
	return err
}

// startFasthttp is a proxy as one writes it with that library in an hour.
func startFasthttp(_ context.Context, _ string, t *target) error {
	ln, err := net.Listen("tcp", t.addr)
	if err != nil {
		return err
	}
	client := &fasthttp.HostClient{
		Addr: t.origin.addr(), MaxConns: 256, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second,
		DisablePathNormalizing: true, DisableHeaderNamesNormalizing: true, NoDefaultUserAgentHeader: true,
	}
	s := &fasthttp.Server{
		ReadBufferSize: 16 << 10, ReadTimeout: 10 * time.Second, NoDefaultServerHeader: true, DisableHeaderNamesNormalizing: true,
		Logger: quiet{},
		Handler: func(ctx *fasthttp.RequestCtx) {
			ctx.Request.Header.Del("Connection")
			if err := client.Do(&ctx.Request, &ctx.Response); err != nil {
				ctx.Error("bad gateway", fasthttp.StatusBadGateway)
			}
			ctx.Response.Header.Del("Connection")
		},
	}
	done := make(chan struct{})
	go func() {
		_ = s.Serve(ln) // it ends by Shutdown
		close(done)
	}()
	t.stop = func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.ShutdownWithContext(ctx)
		client.CloseIdleConnections()
		<-done
	}
	return nil
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func startGateway(bin string) func(context.Context, string, *target) error {
	return func(ctx context.Context, dir string, t *target) error {
		admin, err := child.FreePort()
		if err != nil {
			return err
		}
		if t.stop, err = launch(ctx, dir, t.name, bin, fmt.Sprintf(`listen: "%s"
admin: {listen: "%s"}
log: {level: error, access: false}
store: {dir: "%s/store"}
origins: [{id: origin, servers: ["http://%s"]}]
rooms: [{id: open, paths: ["/"], origin: origin, admission: {rate: 100000}, session: {ttl: 1h}}]
`, t.addr, admin, dir, t.origin.addr()), t.addr, "serve", "--config"); err != nil {
			return err
		}
		c, err := visitor.New(visitor.Options{URLs: []string{"http://" + t.addr}, Room: "open", Connections: 1, Timeout: 10 * time.Second})
		if err != nil {
			return err
		}
		defer c.Close()
		p, err := visitor.Gather(ctx, c, 1, 0, 1)
		if err != nil {
			return err
		}
		t.pass = "X-Waiting-Room-Pass: " + p.LetIn[0].Pass + "\r\n"
		return nil
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/anteroom/anteroom/bench/child"
	"github.com/anteroom/anteroom/bench/site"
)

// stage is every server of the run. stop ends whatever was started, in reverse.
type stage struct {
	dir      string
	children []*child.Child

	origin, nginx, haproxy, gateway *child.Child
	site                            *site.Site
	mixes                           int // rooms for it that have been used

	originAddr, proxyAddr, statusAddr, haproxyAddr, gatewayAddr, adminAddr string
}

func (s *stage) stop() {
	for i := len(s.children) - 1; i >= 0; i-- {
		s.children[i].Stop()
	}
	if s.site != nil {
		s.site.Close()
	}
}

// launch writes a configuration and starts a server with it.
func (s *stage) launch(ctx context.Context, name, bin, conf, text, addr string, args ...string) (*child.Child, error) {
	path := filepath.Join(s.dir, conf)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, err
	}
	c, err := child.Start(name, bin, append(args, path)...)
	if err != nil {
		return nil, err
	}
	s.children = append(s.children, c)
	return c, c.Ready(ctx, addr)
}

const originBytes = 1024

// open starts the origin and the three that stand in front of it.
func (s *stage) open(ctx context.Context, gatewayBin string) error {
	nginx, err := child.Find("nginx")
	haproxy, err2 := child.Find("haproxy")
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	for _, addr := range []*string{&s.originAddr, &s.proxyAddr, &s.statusAddr, &s.haproxyAddr, &s.gatewayAddr, &s.adminAddr} {
		if *addr, err = child.FreePort(); err != nil {
			return err
		}
	}
	if s.site, err = site.Start(); err != nil {
		return err
	}
	if s.origin, err = s.launch(ctx, "origin", nginx, "origin.conf", s.nginxConf("origin", 1, fmt.Sprintf(`
  server {
    listen %s;
    location / { default_type text/plain; return 200 "%s"; }
  }`, s.originAddr, strings.Repeat("x", originBytes))), s.originAddr, "-p", s.dir, "-c"); err != nil {
		return err
	}
	if s.haproxy, err = s.launch(ctx, "haproxy", haproxy, "haproxy.cfg", fmt.Sprintf(`global
  maxconn 8192
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend front
  bind %s
  default_backend origin
backend origin
  server one %s
`, s.haproxyAddr, s.originAddr), s.haproxyAddr, "-db", "-f"); err != nil {
		return err
	}
	s.gateway, err = s.launch(ctx, "gateway", gatewayBin, "gateway.yaml", s.gatewayConf(), s.gatewayAddr, "serve", "--config")
	return err
}

// openNginx starts the proxy and the constant answer, once the size of a status answer is known.
func (s *stage) openNginx(ctx context.Context, statusBody string) error {
	nginx, err := child.Find("nginx")
	if err != nil {
		return err
	}
	quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`, `$`, ``).Replace(statusBody)
	s.nginx, err = s.launch(ctx, "nginx", nginx, "nginx.conf", s.nginxConf("nginx", 0, fmt.Sprintf(`
  upstream origin { server %s; keepalive 256; keepalive_requests 100000000; }
  server {
    listen %s;
    location / { proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ""; }
  }
  server {
    listen %s;
    location / { default_type application/json; return 200 '%s'; }
  }`, s.originAddr, s.proxyAddr, s.statusAddr, quoted)), s.proxyAddr, "-p", s.dir, "-c")
	return err
}

// nginxConf is for a master in the foreground that writes only under the stage's directory; 0 workers: one a core.
func (s *stage) nginxConf(name string, workers int, servers string) string {
	count := "auto"
	if workers > 0 {
		count = fmt.Sprint(workers)
	}
	return fmt.Sprintf(`daemon off;
worker_processes %s;
pid %[2]s/%[3]s.pid;
error_log stderr warn;
events { worker_connections 8192; }
http {
  access_log off;
  keepalive_requests 100000000;
  client_body_temp_path %[2]s/%[3]s-body;
  proxy_temp_path %[2]s/%[3]s-proxy;
  fastcgi_temp_path %[2]s/%[3]s-fastcgi;
  uwsgi_temp_path %[2]s/%[3]s-uwsgi;
  scgi_temp_path %[2]s/%[3]s-scgi;
%[4]s
}
`, count, s.dir, name, servers)
}

// mixRooms is how many runs of the mix there can be: each needs passes, of which a room gives its burst.
const mixRooms = mixRounds + 2*slowRounds

// gatewayConf has a room that lets everybody in, one with a line, some with both for the mix, and one before an origin that
// reads bodies. Sessions and places last longer than the run, so that no renewal is measured that a visitor would not
// cause.
func (s *stage) gatewayConf() string {
	rooms := ""
	for i := range mixRooms {
		rooms += fmt.Sprintf("  - {id: mix%[1]d, paths: [\"/mix%[1]d\"], origin: bench, admission: {rate: 10, burst: 200}, queue: {absence: 1h}, session: {ttl: 1h}}\n", i)
	}
	return fmt.Sprintf(`listen: "%s"
admin: {listen: "%s"}
log: {level: warn, access: false}
store: {dir: "%s/store"}
origins:
  - {id: bench, servers: ["http://%s"]}
  - {id: site, servers: ["http://%s"], max_conns: 8192}  # half of the slow clients reach it
rooms:
  - {id: open, paths: ["/"], origin: bench, admission: {rate: 100000}, session: {ttl: 1h}}
  - {id: line, paths: ["/line"], origin: bench, admission: {rate: 10, burst: 1}, queue: {absence: 1h}, session: {ttl: 1h}}
  - {id: slow, paths: ["/slow"], origin: site, admission: {rate: 100000}, session: {ttl: 1h}}
%s`, s.gatewayAddr, s.adminAddr, s.dir, s.originAddr, s.site.Addr, rooms)
}

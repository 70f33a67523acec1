package main

import (
	"fmt"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/visitor"
)

// target is one of the servers, with an origin of its own.
type target struct {
	name   string
	origin *recorder
	addr   string
	pass   string // the header line of a pass; empty for other servers than the gateway
}

// startTargets starts the servers. The gateway is the last one.
func startTargets(r *rig.Run, gateway string, all []abuse) []*target {
	targets := []*target{{name: "nginx"}, {name: "HAProxy"}, {name: "fasthttp"}, {name: "gateway"}}
	for _, t := range targets {
		t.addr, t.origin = r.Port(), newRecorder(r, all)
		switch t.name {
		case "nginx":
			r.Nginx(t.name, 1, t.addr, rig.NginxProxy(t.addr, t.origin.addr, "proxy_set_header Host $http_host;"))
		case "HAProxy":
			r.HAProxy(t.addr, t.origin.addr)
		case "fasthttp":
			startFasthttp(r, t)
		default:
			g := r.Gateway(gateway, r.OwnStore()+fmt.Sprintf(`origins: [{id: origin, servers: ["http://%s"]}]
rooms: [{id: open, paths: ["/"], origin: origin, admission: {rate: 100000}, session: {ttl: 1h}}]
`, t.origin.addr))
			p := rig.Must(visitor.Gather(r, visitor.Options{URLs: []string{g.URL()}, Room: "open", Connections: 1, Timeout: 10 * time.Second}, 0, 1))
			t.addr, t.pass = g.Addr, "X-Waiting-Room-Pass: "+p.Admitted[0].Pass+"\r\n"
		}
	}
	return targets
}

// startFasthttp starts a proxy as one writes it with that library in an hour.
func startFasthttp(r *rig.Run, t *target) {
	ln := rig.Must(net.Listen("tcp", t.addr))
	client := &fasthttp.HostClient{
		Addr: t.origin.addr, MaxConns: 256, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second,
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
	go func() { _ = s.Serve(ln) }() // returns after Shutdown
	r.Cleanup(func() { _ = s.Shutdown() })
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

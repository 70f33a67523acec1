package suite

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// Gateway is a running gateway beside a proxy.
type Gateway struct {
	Config          string // file
	Check, Visitors string // addresses
	admin, grpc     string
	*Process
}

// began is the time to which the plans of rooms refer: gateways that share a store have to agree on them.
var began = time.Now()

// rooms are the rooms of the suite: one for each case, on a host of its own.
func rooms(dir string, p *Proxy) []string {
	at := func(d time.Duration) string { return began.Add(d).UTC().Format(time.RFC3339) }
	room := func(id, more string) string { return fmt.Sprintf("{id: %s, hosts: [%s.test]%s}", id, id, more) }
	renew := "true"
	if !p.Dialect.Cookies() {
		renew = "server"
	}
	const none = ", admission: {rate: 0}"
	return []string{
		room("free", ", admission: {rate: 1000}"),
		room("full", none+", bypass: [{paths: [/open]}, {paths: [/search], methods: [GET]}]"),
		room("slow", ", admission: {rate: 2, burst: 1}"),
		room("short", ", admission: {rate: 1000}, session: {ttl: 4s, renew: "+renew+"}"),
		room("paused", ", admission: {rate: 1000}"),
		room("closed", ", queue: {method: reject}"),
		room("capacity", none+", queue: {capacity: 1}"),
		room("draw", fmt.Sprintf(", queue: {method: lottery, opens_at: %q, draw_secret_file: %q}", at(2*time.Hour), filepath.Join(dir, "draw"))),
		room("off", none+", enabled: false"),
		room("event", fmt.Sprintf(", admission: {rate: 1000}, events: [{name: shut, starts_at: %q, ends_at: %q, method: reject}]", at(-time.Hour), at(time.Hour))),
		room("revoked", ", admission: {rate: 1000}"),
		room("ended", ", admission: {rate: 1000, max_active: 1}, session: {ttl: 1s, renew: false}"),
		room("keepwait", ", admission: {rate: 1000}, on_store_error: wait"),
		room("keepopen", ", admission: {rate: 1000}, on_store_error: open"),
		room("keepclosed", ", admission: {rate: 1000}, on_store_error: closed"),
		room("part", none+", paths: [/sale]"),
	}
}

// Hosts are the hosts of the rooms.
var Hosts = []string{
	"free.test", "full.test", "slow.test", "short.test", "paused.test", "closed.test", "capacity.test", "draw.test", "off.test", "event.test",
	"revoked.test", "ended.test", "keepwait.test", "keepopen.test", "keepclosed.test", "part.test",
}

// StartGateway starts a gateway that answers the checks of a proxy. Gateways can share a store.
func StartGateway(t testing.TB, store *redistest.PrivateServer, p *Proxy) *Gateway {
	t.Helper()
	dir := Dir(t)
	WriteFile(t, dir, "draw", "the secret of the draw, of more than 32 bytes\n")
	config := fmt.Sprintf(`listen: "127.0.0.1:0"
admin: {listen: "127.0.0.1:0"}
check: {listen: "127.0.0.1:0", grpc: "127.0.0.1:0", trusted: [127.0.0.1/32], dialect: %s}
store: {url: %q, timeout: 500ms}
tokens: {keys: [{id: k1, secret: "a secret of the integration tests, 40 bytes"}]}
shutdown_timeout: 1s
rooms:
`, p.Dialect, store.URL())
	for _, room := range rooms(dir, p) {
		config += "  - " + room + "\n"
	}
	return StartGatewayWith(t, config)
}

// StartGatewayWith starts a gateway with a configuration.
func StartGatewayWith(t testing.TB, config string) *Gateway {
	t.Helper()
	g := &Gateway{Config: WriteFile(t, Dir(t), "gateway.yaml", config)}
	checks := strings.Contains(config, "\ncheck:")
	g.Process = Launch(t, Program(t, "gateway"), "--config", g.Config)
	Eventually(t, "the gateway listens", func() bool {
		select {
		case <-g.ended:
			t.Fatalf("the gateway ended:\n%s", g.Log())
		default:
		}
		g.Visitors, g.Check, g.admin = g.logged("listening"), g.logged("check listening"), g.logged("admin listening")
		g.grpc = g.logged("gRPC check listening")
		return g.Visitors != "" && g.admin != "" && (!checks || g.Check != "" && g.grpc != "")
	})
	Eventually(t, "the store is up", func() bool { return strings.Contains(g.operate(t, "GET", "/metrics", ""), "anteroom_store_up 1") })
	return g
}

// logged returns the address in the log line with a message; empty if there is none.
func (g *Gateway) logged(message string) string {
	for line := range strings.Lines(g.Log()) {
		var entry struct{ Msg, Addr string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == message {
			return entry.Addr
		}
	}
	return ""
}

// operate sends a request to the operators' socket and returns the body of the response.
func (g *Gateway) operate(t testing.TB, method, path, body string) string {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+g.admin+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s, %v", method, path, response.StatusCode, text, err)
	}
	return string(text)
}

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// rawly sends the bytes of a request, returns the status line and reports whether the origin responded.
func rawly(t *testing.T, g *gateway, method, target string, lines ...string) (status string, reached bool, text string) {
	t.Helper()
	lines = append([]string{method + " " + target + " HTTP/1.1", "Host: " + g.addr, "Accept: application/json", "Connection: close"}, lines...)
	text = raw(t, g.addr, strings.Join(lines, "\r\n")+"\r\n\r\n")
	status, _, _ = strings.Cut(strings.TrimPrefix(text, "HTTP/1.1 "), "\r\n")
	return status, strings.Contains(text, "\r\nX-Origin: yes\r\n"), text
}

// Paths below which some server runs the handler of /sale, beside those of TestPaths_CannotBeDisguised.
var disguises = []string{
	"/sale/buy/../../x", "/sale/buy/%2e%2e/%2e%2e/x", "//h/sale/buy", "///h/sale/buy", "/sale/buy/../../vip/x", "/vip/../sale/buy",
	"/vip/..;/sale/buy", "/vip/..%2fsale/buy", "/vip/%2e%2e%5csale/buy", "/vip;/..;/sale/buy", "//vip/sale/buy", "/vip/a//../../sale/buy",
	"/sale/buy//../../vip/x", "/vip/x%2fy/../..%2fsale", "/%u0073ale/buy",
}

// No spelling of a path bypasses a room, however a server reads it, and a pass is valid for its own room only.
func TestPaths_NoneLeadsPastRoom(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	alone := start(t, setup{origin: site.URL, rooms: []string{"{id: sale, paths: [/sale], admission: {rate: 0}}"}})
	free := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}", "bypass: [{paths: [/vip]}]")}})
	two := start(t, setup{origin: site.URL, rooms: []string{
		"{id: sale, paths: [/sale], admission: {rate: 0}}", "{id: vip, paths: [/vip], admission: {rate: 100, burst: 100}}",
	}})
	pass := newClient(t, two).get(two, "/vip").want(http.StatusOK).header.Get("X-Waiting-Room-Pass")
	for _, path := range disguises {
		for _, method := range []string{"GET", "POST"} {
			for name, g := range map[string]*gateway{"a room alone": alone, "a bypass beside it": free, "the pass of another room": two} {
				status, reached, _ := rawly(t, g, method, path, "X-Waiting-Room-Pass: "+pass)
				if reached {
					t.Errorf("%s %s went past %s: %s", method, path, name, status)
				}
			}
		}
	}
	if status, reached, text := rawly(t, two, "GET", "/sale/..//vip/?a=//b"); reached || !strings.HasPrefix(status, "308") || !strings.Contains(text, "\r\nLocation: /vip/?a=//b\r\n") {
		t.Errorf("a path to two rooms: %s", text)
	}
	if status, reached, text := rawly(t, two, "POST", "/sale/../vip"); reached || !strings.HasPrefix(status, "400") || !strings.Contains(text, `"ambiguous_path"`) {
		t.Errorf("a POST to two rooms: %s", text)
	}
	if status, reached, _ := rawly(t, two, "POST", "/vip/./a//b;c", "X-Waiting-Room-Pass: "+pass); !reached || site.last().URI != "/vip/./a//b;c" {
		t.Errorf("a path to one room: %s, the site saw %s", status, site.last().URI)
	}
}

// A Sec-Fetch-Dest header, which any client can send, does not bypass proof of work.
func TestGuard_SubresourceDoesNotBypass(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 100}", "guard: {proof_of_work: always}")}})
	for _, method := range []string{"GET", "HEAD", "POST", "DELETE"} {
		for _, header := range []string{"Sec-Fetch-Dest: image", "Sec-Purpose: prefetch"} {
			if status, reached, _ := rawly(t, g, method, "/checkout", header); reached {
				t.Errorf("%s with %s: %s", method, header, status)
			}
		}
	}
}

// Preflights carry no pass. They reach the site without a body and within a limit, of which one address has a part; in a closed room they
// are refused.
func TestPreflights_AreLimited(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{
		"{id: sale, paths: [/sale], admission: {rate: 0}}", "{id: shut, paths: [/shut], queue: {method: reject}}",
	}, more: "trusted_proxies: [127.0.0.1/32]\n"})
	const preflights = "Access-Control-Request-Method: POST"
	for _, row := range []struct {
		name             string
		addresses        int
		burst, perSecond int
	}{{"one address", 1, 12, 12}, {"many addresses", 50, 30, 50}} { // the first address has used a part of the limit of all
		begun, passed := time.Now(), 0
		for i := range 150 {
			status, reached, text := rawly(t, g, "OPTIONS", "/sale", preflights, fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", i%row.addresses))
			if reached {
				passed++
			} else if !strings.HasPrefix(status, "503") || !strings.Contains(text, "\r\nRetry-After: ") {
				t.Fatal(text)
			}
		}
		most := 50 + 1 + int(time.Since(begun).Seconds()*float64(row.perSecond))
		if row.addresses == 1 {
			most -= 50 - row.burst
		}
		if passed < row.burst || passed > most {
			t.Errorf("%s: %d of 150 preflights reached the site in %v", row.name, passed, time.Since(begun))
		}
	}
	if status, reached, _ := rawly(t, g, "OPTIONS", "/shut", preflights); reached || !strings.HasPrefix(status, "503") {
		t.Errorf("a preflight of a closed room: %s", status)
	}
	if status, reached, _ := rawly(t, g, "OPTIONS", "/sale", preflights, "Content-Length: 0"); !reached && !strings.HasPrefix(status, "503") {
		t.Errorf("a preflight with an empty body: %s", status)
	}
	before := len(site.Requests())
	raw(t, g.addr, "OPTIONS /sale HTTP/1.1\r\nHost: "+g.addr+"\r\n"+preflights+"\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx")
	if len(site.Requests()) != before {
		t.Error("a preflight with a body reached the site")
	}
}

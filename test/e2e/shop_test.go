package e2e

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/anteroom/anteroom/internal/freeport"
)

// startShop starts the demo shop and returns its URL.
func startShop(t *testing.T) string {
	t.Helper()
	url, _ := startShopAt(t, "127.0.0.1:0")
	return url
}

// startShopAt starts the demo shop at an address; kill ends it like a crash.
func startShopAt(t *testing.T, addr string, args ...string) (url string, kill func()) {
	t.Helper()
	cmd := exec.Command(shopBinary, append([]string{"--listen", addr}, args...)...)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if _, rest, ok := strings.Cut(lines.Text(), "msg=listening addr="); ok {
				found <- strings.Fields(rest)[0]
			}
		}
	}()
	end := func(s syscall.Signal) func() {
		return func() {
			_ = cmd.Process.Signal(s)
			<-read
			_ = cmd.Wait()
		}
	}
	t.Cleanup(end(syscall.SIGTERM))
	select {
	case a := <-found:
		return "http://" + a, end(syscall.SIGKILL)
	case <-time.After(patience):
		t.Fatal("the shop does not listen")
	}
	return "", nil
}

// An ordinary site works behind the gateway: pages, a POST, a WebSocket that lives on, server-sent events.
func TestShop_WorksBehindGateway(t *testing.T) {
	t.Parallel()
	shop := startShop(t)
	g := start(t, setup{origin: shop, rooms: []string{room(admission(50, 50))}})
	b := newBrowser(t, g)
	home := b.lax().get(g, "/", asBrowser).want(http.StatusOK)
	found := regexp.MustCompile(`/events/([a-z0-9-]+)`).FindStringSubmatch(home.body)
	if found == nil {
		t.Fatalf("no event on %s", home.body)
	}
	event := found[0]
	pass := b.cookie(g, "wr_sale_pass")
	b.lax().get(g, event, asBrowser).want(http.StatusOK)
	b.lax().get(g, "/nosuch", asBrowser).want(http.StatusNotFound)

	// The WebSocket requires a pass.
	url := "ws://" + g.addr + event + "/seats/ws"
	if _, resp, err := websocket.DefaultDialer.Dial(url, nil); err == nil || resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Fatalf("without a pass: %v %v", resp, err)
	}
	conn, resp, err := websocket.DefaultDialer.Dial(url, http.Header{"Cookie": {"wr_sale_pass=" + pass}, "Origin": {"http://" + g.addr}})
	if err != nil {
		t.Fatalf("with a pass: %v %v", err, resp)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, message, err := conn.ReadMessage(); err != nil || !strings.Contains(string(message), `"kind":"seats"`) {
		t.Fatalf("%v: %s", err, message)
	}
	order := b.lax().ask(g, http.MethodPost, "/checkout", "event="+found[1]+"&quantity=2&name=Ana&email=ana%40example.com",
		headers{"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://" + g.addr}, asBrowser)
	if order.code/100 != 2 && order.code/100 != 3 {
		t.Fatalf("checkout: %d %s", order.code, tail(order.body))
	}
	if _, message, err := conn.ReadMessage(); err != nil || !strings.Contains(string(message), `"kind":"change"`) {
		t.Errorf("after the sale: %v: %s", err, message)
	}
}

// The shop publishes what is left, and those who wait see it: in their status, and at the URL that it names.
func TestShop_PublishesFacts(t *testing.T) {
	t.Parallel()
	at := freeport.Address(t)
	g := start(t, setup{origin: "http://" + at, rooms: []string{room("admission: {rate: 0}")}})
	startShopAt(t, at, "--facts", "http://"+g.admin+"/admin/v1/rooms/sale/facts")
	c := newClient(t, g).lax()
	waiting := c.join(g)
	var facts struct{ Version, URL string }
	until(t, "the status names the facts", func() bool {
		var status struct {
			Facts *struct{ Version, URL string }
		}
		a := c.get(g, "/.waiting-room/sale/status", headers{"X-Waiting-Room-Token": waiting.Token})
		if json.Unmarshal([]byte(a.body), &status) != nil || status.Facts == nil {
			return false
		}
		facts = *status.Facts
		return true
	})
	body := c.get(g, facts.URL).want(http.StatusOK).body
	if !strings.Contains(body, `"Aurora Orchestra: Night Music"`) || !strings.Contains(body, `"available"`) {
		t.Errorf("the facts: %s", body)
	}
}

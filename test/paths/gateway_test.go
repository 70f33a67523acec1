package paths

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/anteroom/anteroom/internal/freeport"
)

// gate is a gateway with rooms of its own, and what a visitor sends to it.
type gate struct {
	server
	fields string
	holds  func(handler string) bool // what the site runs for a request of this visitor that gets past is a fault
}

// startGateways starts the built gateway with each kind of rooms.
func startGateways(t *testing.T) []gate {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "gateway")
	if out, err := exec.Command("go", "build", "-o", bin, "../../cmd/gateway").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Origin", "yes") }))
	t.Cleanup(site.Close)
	inSale := func(handler string) bool { return handler == "sale" }
	gates := []gate{
		{server: server{name: "a room over /sale"}, holds: inSale},
		{server: server{name: "a pattern for /sale"}, holds: inSale},
		{server: server{name: "a bypass of /static"}, holds: func(handler string) bool { return handler != "static" && handler != "" }},
		{server: server{name: "the pass of /vip"}, holds: inSale},
	}
	for i, rooms := range []string{
		`{id: sale, paths: [/sale], admission: {rate: 0}}`,
		`{id: sale, paths: ["~^/sale([/;%]|[[:cntrl:]]|$)"], admission: {rate: 0}}`,
		`{id: all, admission: {rate: 0}, bypass: [{paths: [/static]}]}`,
		`{id: sale, paths: [/sale], admission: {rate: 0}}, {id: vip, paths: [/vip], admission: {rate: 100000}}`,
	} {
		gates[i].addr = startGateway(t, bin, site.URL, rooms)
	}
	vip := &gates[3]
	_, header, _, err := (&asker{addr: vip.addr}).ask("/vip")
	if pass := header.Get("X-Waiting-Room-Pass"); err != nil || pass == "" {
		t.Fatalf("no pass: %v, %v", header, err)
	} else {
		vip.fields = "X-Waiting-Room-Pass: " + pass + "\r\n"
	}
	return gates
}

func startGateway(t *testing.T, bin, site, rooms string) (addr string) {
	t.Helper()
	dir := t.TempDir()
	addr, admin := freeport.Address(t), freeport.Address(t)
	path := filepath.Join(dir, "gateway.yaml")
	conf := fmt.Sprintf("listen: %q\nadmin: {listen: %q}\nlog: {level: error, access: false}\nstore: {dir: %q, timeout: 5s}\norigins: [{id: site, servers: [%q]}]\ndefault_origin: site\nrooms: [%s]\n",
		addr, admin, filepath.Join(dir, "store"), site, rooms)
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "serve", "--config", path)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		<-ended
	})
	if err := listening([]server{{"gateway", addr}}, ended); err != nil {
		t.Fatal(err)
	}
	return addr
}

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/anteroom/anteroom/internal/redistest"
)

// botReport is a line of test/bots --json.
type botReport struct {
	Strategy              string
	Tries, Places, Tokens int
	Seconds               float64
	Refused               map[string]int
}

// bots runs test/bots against gateways.
func bots(t *testing.T, gateways []*gateway, args ...string) map[string]botReport {
	t.Helper()
	var targets []string
	for _, g := range gateways {
		targets = append(targets, "http://"+g.addr)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, botsBinary, append([]string{"--json", "--target", strings.Join(targets, ","), "--room", "sale"}, args...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("bots: %v\n%s", err, errs.String())
	}
	reports := map[string]botReport{}
	for line := range strings.Lines(string(out)) {
		var r botReport
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		t.Logf("%s: %d tries, %d tokens, %d places, %v", r.Strategy, r.Tries, r.Tokens, r.Places, r.Refused)
		reports[r.Strategy] = r
	}
	return reports
}

// A CAPTCHA solution is valid for the hosts in the configuration, whatever host the visitor requests.
func TestCaptcha_Hosts(t *testing.T) {
	t.Parallel()
	judge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"success":true,"hostname":%q}`, r.PostFormValue("response"))
	}))
	t.Cleanup(judge.Close)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	site := newOrigin(t, nil)
	captcha := fmt.Sprintf("provider: turnstile, site_key: key, secret_file: %q, verify_url: %q", secret, judge.URL)
	g := start(t, setup{origin: site.URL, rooms: []string{
		"{id: sale, paths: [/sale], admission: {rate: 0}, guard: {captcha: {" + captcha + ", hosts: [shop.example]}}}",
		"{id: www, hosts: ['*.www.example'], admission: {rate: 0}, guard: {captcha: {" + captcha + "}}}",
	}})
	c := newClient(t, g)
	for _, row := range []struct {
		room, host, given string
		want              int
	}{
		{"sale", "shop.example", "shop.example", http.StatusCreated},
		{"sale", "phish.example", "phish.example", http.StatusUnprocessableEntity},
		{"sale", "127.0.0.1", "Shop.Example", http.StatusCreated},
		{"www", "a.www.example", "b.www.example", http.StatusCreated},
		{"www", "a.www.example", "shop.example", http.StatusUnprocessableEntity},
	} {
		if a := c.ask(g, http.MethodPost, "/.waiting-room/"+row.room+"/tickets", fmt.Sprintf(`{"captcha":%q}`, row.given), headers{"Host": row.host}); a.code != row.want {
			t.Errorf("%v: %d %s", row, a.code, a.body)
		}
	}
}

// An address receives at most its share of places, whatever it sends and over all gateways; a network has its own share.
func TestGuard_BotsGetTheirShare(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	s := setup{origin: site.URL, more: "log: {access: false}", rooms: []string{room(admission(1, 1), `guard: {joins_per_ip: "20/24h,60/24h"}`)}}.withRedis(redistest.Server(t).URL())
	gateways := []*gateway{start(t, s), start(t, s)}
	for strategy, r := range bots(t, gateways, "--tries", "3000", "--only", "one-address") {
		if r.Tries != 3000 || r.Places != 20 {
			t.Errorf("%s: %d places of %d tries, want 20 of 3000", strategy, r.Places, r.Tries)
		}
	}
	want := map[string]int{"one-page": 20, "one-keys": 20, "one-tabs": 1, "one-/24": 60, "one-/64": 20, "one-/48": 60, "anywhere": 300}
	for strategy, r := range bots(t, gateways, "--tries", "300", "--only", "one-page,one-keys,one-tabs,one-/24,one-/64,one-/48,anywhere") {
		if r.Places != want[strategy] || r.Tries != 300 {
			t.Errorf("%s: %d places of %d tries, want %d of 300", strategy, r.Places, r.Tries, want[strategy])
		}
	}
}

// With proof of work each place costs a proof, also for bots with many addresses.
func TestProofOfWork_BotsSolveForEachPlace(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(1, 1), `guard: {proof_of_work: always, proof: {number: 5000, most: 5000}}`)}})
	reports := bots(t, []*gateway{g}, "--tries", "200", "--only", "anywhere,anywhere-proof,replay")
	for strategy, want := range map[string]int{"anywhere": 0, "anywhere-proof": 200, "replay": 1} {
		if r := reports[strategy]; r.Places != want || r.Tries != 200 {
			t.Errorf("%s: %d places of %d tries, want %d of 200", strategy, r.Places, r.Tries, want)
		}
	}
	if n := reports["anywhere"].Refused["proof_required"]; n != 200 {
		t.Errorf("%d of 200 were asked for a proof", n)
	}
	for _, line := range []string{`anteroom_proof_number{room="sale"} 5000`, `anteroom_joins_refused_total{reason="proof_missing",room="sale"} 200`} {
		until(t, line, func() bool { return adminOf(t, g).metric(line) })
	}
}

// A browser solves the proof by itself and is admitted.
func TestProofOfWork_BrowserSolves(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(5, 1), `guard: {joins_per_ip: "20/1m", proof_of_work: always, proof: {number: 100000, most: 100000}}`)}})
	ctx := tab(t, nil)
	do(t, ctx, chromedp.Navigate(fmt.Sprintf("http://%s/tickets/1?row=7", g.addr)))
	shows(t, ctx, `location.pathname + location.search === "/tickets/1?row=7" && document.title === "The site"`)
	if a := newClient(t, g).get(g, "/tickets/2", headers{"Accept": "application/json"}); a.code != http.StatusPreconditionRequired {
		t.Errorf("an API client without a proof: %d %s", a.code, a.body)
	}
}

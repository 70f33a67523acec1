package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/anteroom/anteroom/internal/redistest"
)

// downstream is a receiver that can be away: then its port refuses connections.
type downstream struct {
	t       *testing.T
	address string
	server  *httptest.Server
	answer  http.HandlerFunc
	mu      sync.Mutex
	seen    map[string]int // job → runs that it answered with 200
}

func newDownstream(t *testing.T, answer func(w http.ResponseWriter, r *http.Request) bool) *downstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &downstream{t: t, address: l.Addr().String(), seen: map[string]int{}}
	d.answer = func(w http.ResponseWriter, r *http.Request) {
		if answer != nil && !answer(w, r) {
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.seen[r.Header.Get("X-Bulk-Group")+"/"+r.Header.Get("X-Bulk-Job")]++
	}
	l.Close()
	return d
}

func (d *downstream) open() {
	d.t.Helper()
	l, err := net.Listen("tcp", d.address)
	if err != nil {
		d.t.Fatal(err)
	}
	d.server = httptest.NewUnstartedServer(d.answer)
	d.server.Listener.Close()
	d.server.Listener = l
	d.server.Start()
	d.t.Cleanup(d.server.Close)
}

// jobLines are n jobs.
func jobLines(n int) string {
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "{\"id\":\"j%d\",\"payload\":%d}\n", i, i)
	}
	return lines.String()
}

func (p *process) submitTo(tenant, group string, n int) {
	p.t.Helper()
	if status, answer := p.do("POST", "/v1/bulk?tenant="+tenant+"&type=webhook&id="+group, jobLines(n)); status != http.StatusCreated {
		p.t.Fatalf("submit: %d %s", status, answer)
	}
}

// breakers waits until those are open, as processor/tenant in their order.
func (p *process) breakers(want ...string) {
	p.t.Helper()
	eventually(p.t, func() error {
		_, answer := p.do("GET", "/v1/breakers", "")
		var a struct {
			Breakers []struct{ Processor, Tenant string }
		}
		if err := json.Unmarshal([]byte(answer), &a); err != nil {
			return err
		}
		var got []string
		for _, b := range a.Breakers {
			got = append(got, b.Processor+"/"+b.Tenant)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("open %v, want %v", got, want)
		}
		return nil
	})
}

// spent returns how many failed tries the jobs of a group that ended have spent, and how many jobs succeeded.
func (p *process) spent(group string) (tries, succeeded int) {
	p.t.Helper()
	_, answer := p.do("GET", "/v1/groups/"+group+"/results?limit=10000", "")
	for line := range strings.Lines(answer) {
		var o struct {
			Status   string
			Attempts int
		}
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			p.t.Fatalf("%v in %s", err, line)
		}
		if o.Status == "succeeded" {
			succeeded++
			o.Attempts--
		}
		tries += o.Attempts
	}
	return tries, succeeded
}

const hastyRetries = "retry: {max: 2, base: 10ms, most: 10ms}"

// A downstream that refuses connections costs few tries and no job, even if jobs have few tries.
func TestBreaker_OutageLosesNoJob(t *testing.T) {
	t.Parallel()
	to := newDownstream(t, nil)
	p := start(t, fmt.Sprintf("store: {url: %q}\nrate: {global: 500}\nprocessors: {webhook: {url: \"http://%s/\", %s}}\n", redistest.Server(t).URL(), to.address, hastyRetries))
	p.submitTo("acme", "g", 400)
	p.breakers("webhook/")
	to.open()
	p.group("g", "COMPLETED")
	if tries, succeeded := p.spent("g"); succeeded != 400 || tries > 19 {
		t.Errorf("%d of 400 jobs succeeded, %d tries were spent", succeeded, tries)
	}
	p.breakers()
	p.audit()
}

// When the downstream refuses the token of one tenant, only that tenant's jobs wait, and none is lost.
func TestBreaker_OneTenantsTokenHoldsItAlone(t *testing.T) {
	t.Parallel()
	var rotated atomic.Bool
	to := newDownstream(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("X-Bulk-Tenant") == "acme" && !rotated.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return false
		}
		return true
	})
	to.open()
	p := start(t, fmt.Sprintf("store: {url: %q}\nworker: {count: 4}\nrate: {global: 300}\nprocessors: {webhook: {url: \"http://%s/\", %s}}\n", redistest.Server(t).URL(), to.address, hastyRetries))
	p.submitTo("beta", "other", 600)
	p.submitTo("acme", "g", 100)
	p.breakers("webhook/acme")
	p.group("other", "COMPLETED")
	if tries, succeeded := p.spent("other"); succeeded != 600 || tries != 0 {
		t.Errorf("of beta's 600 jobs %d succeeded, %d tries were spent", succeeded, tries)
	}
	rotated.Store(true)
	if status, answer := p.do("DELETE", "/v1/breakers?processor=webhook&tenant=acme", ""); status != http.StatusOK {
		t.Errorf("lifting the breaker: %d %s", status, answer)
	}
	p.group("g", "COMPLETED")
	if tries, succeeded := p.spent("g"); succeeded != 100 || tries > 19 {
		t.Errorf("of acme's 100 jobs %d succeeded, %d tries were spent", succeeded, tries)
	}
	p.audit()
}

// Workers that are killed while a breaker is open lose no job. KILLS is the number of kills, 2 by default.
func TestBreaker_KilledWorkersLoseNoJob(t *testing.T) {
	t.Parallel()
	kills := 2
	if n, err := strconv.Atoi(os.Getenv("KILLS")); err == nil {
		kills = n
	}
	to := newDownstream(t, nil)
	yaml := fmt.Sprintf("store: {url: %q}\nworker: {lease: 1s}\nrate: {global: 500}\nprocessors: {webhook: {url: \"http://%s/\", %s}}\n", redistest.Server(t).URL(), to.address, hastyRetries)
	p := start(t, yaml)
	p.submitTo("acme", "g", 200)
	for range kills {
		p.breakers("webhook/")
		p.signal(syscall.SIGKILL)
		<-p.ended
		p = start(t, yaml)
	}
	p.breakers("webhook/")
	to.open()
	p.group("g", "COMPLETED")
	tries, succeeded := p.spent("g")
	if succeeded != 200 || len(to.seen) != 200 || tries > 19 {
		t.Errorf("%d of 200 jobs succeeded, the downstream saw %d, %d tries were spent", succeeded, len(to.seen), tries)
	}
	p.audit()
}

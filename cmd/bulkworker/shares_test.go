package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// TestShares_OfWorkersGoByTime: beside a tenant whose jobs take a second, one whose jobs take 5 ms has half of the workers'
// time. Sharing by starts, its 500 jobs took 50 s: one start for each start of the other tenant.
func TestShares_OfWorkersGoByTime(t *testing.T) {
	t.Parallel()
	var slow atomic.Int64 // that have begun
	to := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		takes := 5 * time.Millisecond
		if r.Header.Get("X-Bulk-Tenant") == "slow" {
			takes = time.Second
			slow.Add(1)
		}
		select {
		case <-time.After(takes):
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(to.Close)
	p := start(t, fmt.Sprintf("store: {url: %q}\nprocessors: {webhook: {url: %q}}\nworker: {count: 10}\n", redistest.Server(t).URL(), to.URL))
	p.ready(http.StatusOK)
	submit := func(tenant, group string, jobs int) {
		t.Helper()
		status, answer := p.do("POST", "/v1/bulk?type=webhook&tenant="+tenant+"&id="+group, strings.Repeat("{\"payload\":1}\n", jobs))
		if status != http.StatusCreated {
			t.Fatal(status, answer)
		}
	}
	began := time.Now()
	submit("quick", "alone", 500)
	p.group("alone", "COMPLETED")
	alone := time.Since(began)

	submit("slow", "slow", 600)
	eventually(t, func() error {
		if n := slow.Load(); n < 10 {
			return fmt.Errorf("%d slow jobs have begun", n)
		}
		return nil
	})
	before := slow.Load()
	began = time.Now()
	submit("quick", "beside", 500)
	p.group("beside", "COMPLETED")
	took := time.Since(began)
	more := slow.Load() - before
	t.Logf("500 jobs of 5 ms took %v alone, %v beside jobs of 1 s, of which %d started meanwhile (2 × alone + 1.5 s is %v)", alone, took, more, 2*alone+1500*time.Millisecond)
	// In the time that its 500 jobs ran, 2.5 s and more on a busy machine, the slow tenant may run as long, and what fills ten workers.
	if most := int64(10 + 2*(2.5+alone.Seconds()*10)); more > most {
		t.Errorf("%d slow jobs started while 500 quick ones ran, want at most %d", more, most)
	}
	if status, answer := p.do("POST", "/v1/groups/slow/cancel", ""); status != http.StatusOK {
		t.Error(status, answer)
	}
}

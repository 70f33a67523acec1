package client

import (
	"bytes"
	"errors"
	"net/http"
	"testing"

	"github.com/anteroom/anteroom/internal/short"
)

// A download goes on where it broke: every outcome comes once.
func TestResultsThroughABadLine(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	const jobs = 5000
	s := serve(t)
	s.work(t)
	good := newClient(t, s.URL, Options{})
	g := submit(t, good, GroupSpec{}, lines(jobs))
	if g = end(t, good, g.ID); g.Succeeded != jobs {
		t.Fatalf("ended %+v", g)
	}
	var whole bytes.Buffer
	if n, err := good.WriteResults(t.Context(), g.ID, &whole); err != nil || n != jobs {
		t.Fatalf("%d lines, %v", n, err)
	}
	bad := cut(t, s.Server)
	bad.receiving(0, 300, 100_000, 250_000, 400_001)
	c := newClient(t, bad.url(), Options{HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	var pieces bytes.Buffer
	if n, err := c.WriteResults(t.Context(), g.ID, &pieces); err != nil || n != jobs {
		t.Fatalf("%d lines, %v", n, err)
	}
	if !bytes.Equal(pieces.Bytes(), whole.Bytes()) {
		t.Errorf("%d bytes through %d cuts; want the %d of one piece", pieces.Len(), bad.done(), whole.Len())
	}
	if bad.done() != 5 {
		t.Errorf("the connection broke %d times; want 5", bad.done())
	}
	seen := map[string]bool{}
	for o, err := range c.Results(t.Context(), g.ID) {
		if err != nil || o.Status != "succeeded" || seen[o.ID] {
			t.Fatalf("%+v, %v", o, err)
		}
		seen[o.ID] = true
		if len(seen) == 100 {
			break // a reader may leave
		}
	}
}

func TestDownloadToAFullDisk(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.work(t)
	c := newClient(t, s.URL, Options{})
	g := submit(t, c, GroupSpec{}, lines(2000))
	end(t, c, g.ID)
	full := errors.New("no space left")
	if _, err := c.WriteResults(t.Context(), g.ID, writerFunc(func([]byte) (int, error) { return 0, full })); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	if n, err := c.WriteDead(t.Context(), g.ID, writerFunc(func([]byte) (int, error) { return 0, full })); n != 0 || err != nil {
		t.Errorf("no dead letters: %d, %v", n, err)
	}
}

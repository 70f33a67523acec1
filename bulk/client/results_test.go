package client

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/anteroom/anteroom/internal/short"
)

// An interrupted download continues where it broke off: every outcome is written once.
func TestResults_ThroughUnreliableConnection(t *testing.T) {
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

func TestResults_ToFullDisk(t *testing.T) {
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

// A group with results: failures may drop outcomes during a download: the download continues after the cursor of its last line.
func TestResults_GoOnBehindTheCursor(t *testing.T) {
	t.Parallel()
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("cursor"))
		if len(asked)%2 == 1 {
			_, _ = io.WriteString(w, `{"id":"a","status":"failed","attempts":1,"error":"x,\"cursor\":\"9:9\"}","cursor":"0:1"}`+"\n"+`{"id":"b","status":"succeeded","attempts":1,"cursor":"0:2"}`+"\n")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, `{"id":"z","status":"succeeded","attempts":1,"cursor":"3:7"}`+"\n")
	}))
	t.Cleanup(s.Close)
	c := newClient(t, s.URL, Options{})
	const a, b, z = `{"id":"a","status":"failed","attempts":1,"error":"x,\"cursor\":\"9:9\"}"`, `{"id":"b","status":"succeeded","attempts":1`, `{"id":"z","status":"succeeded","attempts":1`
	for _, row := range []struct {
		which Which
		want  string
	}{
		{Which{}, a + "}\n" + b + "}\n" + z + "}\n"},
		{Which{Cursor: new("")}, a + `,"cursor":"0:1"}` + "\n" + b + `,"cursor":"0:2"}` + "\n" + z + `,"cursor":"3:7"}` + "\n"},
	} {
		asked = nil
		var out bytes.Buffer
		if n, err := c.WriteSelected(t.Context(), "g", row.which, &out); err != nil || n != 3 || out.String() != row.want {
			t.Errorf("%d lines, %v:\n%swant\n%s", n, err, out.String(), row.want)
		}
		if !slices.Equal(asked, []string{"", "0:2"}) {
			t.Errorf("asked for %q", asked)
		}
	}
}

package client

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/anteroom/anteroom/internal/short"
)

func TestBulk_UploadsGroup(t *testing.T) {
	t.Parallel()
	const jobs = 20_000
	s := serve(t)
	c := newClient(t, s.URL, Options{})
	body := lines(jobs) + "nonsense\n"
	spec := GroupSpec{ID: "bulk", Tenant: "acme", Type: "echo", Priority: Low, Weight: 0.5, BasePriority: -5, Rate: 12.5, Concurrency: 3,
		Aggregate: []byte(`{"op":"sum","field":"n"}`), FailureTolerance: "2.5%", CallbackURL: "https://example.com/done?a=b&c=d", Start: Sealed}
	for _, what := range []string{"first", "again"} {
		// A reader whose length net/http cannot determine.
		a, err := c.Bulk(t.Context(), spec, struct{ io.Reader }{strings.NewReader(body)})
		if err != nil {
			t.Fatal(err)
		}
		if a.ID != "bulk" || !a.Sealed || a.Total != jobs || a.Accepted != jobs || a.Duplicates != 0 || a.RejectedTotal != 1 || a.Rejected[0].Line != jobs+1 {
			t.Errorf("%s: %+v", what, a)
		}
		if a.Priority != Low || a.Weight != 0.5 || a.BasePriority != -5 || a.RateLimit != 12.5 || a.Concurrency != 3 ||
			a.FailureTolerance != "2.5%" || a.CallbackURL != spec.CallbackURL || a.Start != Sealed || !bytes.Contains(a.Aggregate, []byte("sum")) {
			t.Errorf("%s: %+v", what, a.Group)
		}
	}
}

func TestBulk_ThroughUnreliableConnection(t *testing.T) {
	t.Parallel()
	const jobs = 20_000
	s := serve(t)
	for _, row := range []struct {
		name  string
		body  func() io.Reader
		tries int // that the caller makes
	}{
		{"a body that can seek is sent again", func() io.Reader { return strings.NewReader(lines(jobs)) }, 1},
		{"another is the caller's to send", func() io.Reader { return struct{ io.Reader }{strings.NewReader(lines(jobs))} }, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bad := cut(t, s.Server)
			bad.sending(300_000, -1)
			bad.receiving(-1, 100)
			c := newClient(t, bad.url(), Options{HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
			spec := GroupSpec{ID: newID("g-"), Tenant: "acme", Type: "echo"}
			var a *BulkAnswer
			var err error
			tries := 1
			for ; ; tries++ {
				if a, err = c.Bulk(t.Context(), spec, row.body()); err == nil {
					break
				}
				if !Passing(err) || !strings.Contains(err.Error(), spec.ID) || tries > 5 {
					t.Fatal(err)
				}
			}
			if tries != row.tries || a.Accepted != jobs || a.Total != jobs || bad.done() != 2 {
				t.Errorf("after %d tries and %d cuts: %+v", tries, bad.done(), a)
			}
		})
	}
}

func TestBulk_ReturnsErrors(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := newClient(t, s.URL, Options{})
	spec := GroupSpec{Tenant: "acme", Type: "echo"}
	broken := errors.New("the disk is gone")
	if _, err := c.Bulk(t.Context(), spec, io.MultiReader(strings.NewReader(lines(100)), iotest.ErrReader(broken))); !errors.Is(err, broken) || Passing(err) {
		t.Errorf("a source that fails: %v", err)
	}
	_, err := c.Bulk(t.Context(), GroupSpec{Type: "echo"}, strings.NewReader(lines(10)))
	if p, ok := errors.AsType[*Problem](err); !ok || p.Code != "invalid" || len(p.Problems) != 1 || p.Problems[0].Path != "tenant" {
		t.Errorf("no tenant: %v", err)
	}
}

// While the source of a body is slow, the client does not treat the connection as stalled.
func TestBulk_FromSlowSource(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	s := serve(t)
	c := newClient(t, s.URL, Options{})
	c.stall = 2 * time.Second // more than a busy machine takes to answer
	r, w := io.Pipe()
	go func() {
		for _, part := range []string{lines(10), lines(20)} {
			_, _ = io.WriteString(w, part)
			<-time.After(c.stall * 5 / 4)
		}
		_ = w.Close()
	}()
	a, err := c.Bulk(t.Context(), GroupSpec{Tenant: "acme", Type: "echo"}, r)
	if err != nil || a.Accepted != 30 {
		t.Errorf("%+v, %v", a, err)
	}
}

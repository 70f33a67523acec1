package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	errAway   = &Unreachable{Server: "http://x", Err: errors.New("connection refused")}
	errBusy   = &Problem{Status: 429, Code: "quota", RetryAfter: 7 * time.Second}
	errOutage = &Problem{Status: 503, Code: "store_unavailable"}
	errSealed = &Problem{Status: 409, Code: "sealed"}
)

func TestRetry_EndsWithPatience(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		patience time.Duration
		errs     []error // of the calls, in turn; the last goes on
		calls    int
		want     error
		took     time.Duration // at least; jitter makes up to three times as much
	}{
		{"it works", time.Minute, []error{nil}, 1, nil, 0},
		{"a refusal is not repeated", time.Minute, []error{errSealed}, 1, errSealed, 0},
		{"an outage passes", time.Minute, []error{errAway, errOutage, nil}, 3, nil, 375 * time.Millisecond},
		{"the server says when", time.Minute, []error{errBusy, errBusy, nil}, 3, nil, 14 * time.Second},
		{"it says too late", 5 * time.Second, []error{errBusy}, 1, errBusy, 0},
		{"an outage stays", time.Minute, []error{errAway}, 0, errAway, 37 * time.Second},
		{"no patience", -1, []error{errAway}, 1, errAway, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, "http://x", Options{Patience: row.patience})
				calls, start := 0, time.Now()
				err := c.retry(t.Context(), func() error {
					calls++
					return row.errs[min(calls, len(row.errs))-1]
				})
				took := time.Since(start)
				if !errors.Is(err, row.want) || row.calls != 0 && calls != row.calls || took < row.took || took > row.took*3 {
					t.Errorf("%v after %d calls in %v; want %v, %d, %v", err, calls, took, row.want, row.calls, row.took)
				}
			})
		})
	}
}

// Patience starts again with each progress, so all interruptions together may last longer than patience.
func TestPatience_RestartsWithProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, "http://x", Options{Patience: 10 * time.Second})
		p, start := c.newPatience(), time.Now()
		for range 20 {
			if err := p.wait(t.Context(), errBusy); err != nil {
				t.Fatalf("given up after %v: %v", time.Since(start), err)
			}
			p.progress()
		}
		if err := errors.Join(p.wait(t.Context(), errBusy), p.wait(t.Context(), errBusy)); !errors.Is(err, errBusy) {
			t.Errorf("two failures in 14 seconds do not exhaust 10 seconds' patience: %v", err)
		}
	})
}

func TestPatience_EndsWithContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var told []string
		c := newClient(t, "http://x", Options{Patience: time.Hour, OnRetry: func(err error, pause time.Duration) {
			told = append(told, fmt.Sprintf("%v %v", err, pause))
		}})
		start := time.Now()
		err := c.retry(ctx, func() error { return errBusy })
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errBusy) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if len(told) != 1 || told[0] != "429 quota 7s" {
			t.Errorf("OnRetry was told %q", told)
		}
	})
}

func TestNew_ChecksServerURL(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ url, token, want string }{
		{"http://127.0.0.1:8090", "", ""},
		{"https://bulk.example.com/base/", "t", ""},
		{"127.0.0.1:8090", "", `the server's URL "127.0.0.1:8090"`},
		{"ftp://x", "", "use http://host:port or https://host"},
		{"http://", "", "use http://host:port"},
		{"http://x?a=b", "", "leave out query"},
		{"http://x", "a\nb", "the token contains a line break"},
	} {
		_, err := New(row.url, Options{Token: row.token})
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("New(%q, %q): %v; want %q", row.url, row.token, err, row.want)
		}
	}
	c := newClient(t, "http://x/base/", Options{})
	for _, row := range []struct{ id, want string }{
		{"g-1", "http://x/base/v1/groups/g-1"}, {"a/b?c", "http://x/base/v1/groups/a%2Fb%3Fc"}, {"..", "http://x/base/v1/groups/%2E%2E"},
	} {
		if got := c.url(get("v1", "groups", row.id)); got != row.want {
			t.Errorf("%q is at %s; want %s", row.id, got, row.want)
		}
	}
}

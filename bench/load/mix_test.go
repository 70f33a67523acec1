package load

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/bench/visitor"
)

func TestPacing_RampsThenHolds(t *testing.T) {
	s := pacing{Rate: 1000, Ramp: 2 * time.Second, Duration: 3 * time.Second}
	if s.total() != 4000 {
		t.Errorf("%d in all, want 1000 in the ramp and 3000 after it", s.total())
	}
	for k, want := range map[int]time.Duration{0: 0, 250: time.Second, 1000: 2 * time.Second, 1001: 2001 * time.Millisecond, 4000: 5 * time.Second} {
		if got := s.due(k); (got - want).Abs() > time.Microsecond {
			t.Errorf("%d is due after %s, want %s", k, got, want)
		}
	}
}

func TestPacing_NeverGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := pacing{
			Rate: rapid.Float64Range(0.1, 1e6).Draw(t, "rate"), Ramp: time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "ramp")),
			Duration: time.Duration(rapid.Int64Range(1e6, 1e10).Draw(t, "duration")),
		}
		k := rapid.IntRange(0, s.total()).Draw(t, "k")
		if a, b := s.due(k), s.due(k+1); a > b || a > s.Ramp+s.Duration+time.Microsecond {
			t.Fatalf("request %d of %d is due after %s, the next after %s", k, s.total(), a, b)
		}
	})
}

// The paths of a site respond, refuse, break the connection or respond too late.
func TestMix_CountsErrorsByKind(t *testing.T) {
	release := make(chan struct{})
	var held atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/long":
			_, _ = w.Write(make([]byte, 300_000)) // chunked
		case "/last":
			w.Header().Set("Connection", "close")
		case "/refused":
			http.Error(w, "no", http.StatusServiceUnavailable)
		case "/hold":
			held.Add(1)
			<-release
		case "/break":
			panic(http.ErrAbortHandler)
		}
	}))
	defer s.Close()
	defer close(release)
	for _, tt := range []struct {
		path, want string // an error
		timeout    time.Duration
		late       bool
	}{
		{path: "/"}, {path: "/long"}, {path: "/last"},
		{path: "/refused", want: "with a pass: status 503"},
		{path: "/break", want: "closed"},
		{path: "/hold", want: "timeout", timeout: 100 * time.Millisecond, late: true},
	} {
		t.Run(tt.path, func(t *testing.T) {
			to := visitor.Options{URLs: []string{s.URL, s.URL}, Room: "default", Connections: 4, Timeout: max(tt.timeout, 20*time.Second)}
			if tt.timeout > 0 {
				to.Timeout = tt.timeout
			}
			o := mixOptions{pacing: pacing{Rate: 1000, Duration: 50 * time.Millisecond}, Path: tt.path}
			r := runMix(t.Context(), to, o, blend{Proxied: 1}, &visitor.Pool{Admitted: make([]visitor.Credentials, 1)})
			found := int64(0)
			for why, n := range r.Kinds {
				if tt.want != "" && strings.Contains(why, tt.want) {
					found += n
				}
			}
			unsent := r.Kinds["never sent: no connection was free"]
			if tt.want == "" && (r.Errors > 0 || r.All.Count != 50 || r.Sent.Count != 50) || tt.want != "" && (found == 0 || found+unsent != 50) || tt.late != (unsent > 0) {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestTokens_AreSavedAndLoaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	all := []string{token("a", 1), token("b", 2)}
	if err := saveTokens(path, all); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want a file that only its owner may read", info.Mode(), err)
	}
	if p, err := loadTokens(path); err != nil || len(p.Waiting) != 2 || p.Waiting[0].Token != all[0] || p.Waiting[1].Token != all[1] {
		t.Errorf("%+v, %v", p, err)
	}
	for name, text := range map[string]string{"holds no token": "\n\n", "token 2: not a token": token("v", 1) + "\nx.y\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadTokens(path); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v, want %q", text, err, name)
		}
	}
}

package sdk

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// gateway serves key sets and lists of revoked sessions.
type gateway struct {
	url string

	mu                                   sync.Mutex
	keys, revoked                        []string
	mode                                 string // "", "away": status 503, "hangs": no response, "redirects"
	delay                                time.Duration
	keyFetches, listFetches, notModified int
	release                              chan struct{}
}

func startGateway(t *testing.T) *gateway {
	g := &gateway{release: make(chan struct{})}
	s := httptest.NewServer(g)
	t.Cleanup(func() { close(g.release); s.Close() })
	g.url = s.URL
	return g
}

func (g *gateway) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	mode, delay, isKeys := g.mode, g.delay, r.URL.Path == "/.waiting-room/jwks.json"
	if isKeys {
		g.keyFetches++
	} else {
		g.listFetches++
	}
	body := string(jwks(g.keys...))
	if !isKeys {
		var list []string
		for _, sid := range g.revoked {
			list = append(list, fmt.Sprintf(`{"sid":%q,"until":%d}`, sid, start+3600))
		}
		body = `{"room":"sale","revoked":[` + strings.Join(list, ",") + `]}`
	}
	tag := fmt.Sprintf(`"%d-%s"`, len(g.revoked), strings.Join(g.keys, "-"))
	fresh := mode == "" && r.Header.Get("If-None-Match") == tag
	if fresh {
		g.notModified++
	}
	g.mu.Unlock()
	switch {
	case !isKeys && r.URL.Path != "/.waiting-room/sale/revoked", mode == "away":
		http.Error(w, "no", http.StatusServiceUnavailable)
		return
	case mode == "hangs":
		select {
		case <-g.release:
		case <-r.Context().Done():
		}
		return
	case mode == "redirects":
		http.Redirect(w, r, g.url+"/elsewhere", http.StatusFound)
		return
	}
	<-time.After(delay) // makes requests of the SDK overlap
	w.Header().Set("Etag", tag)
	if fresh {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	fmt.Fprint(w, body)
}

func (g *gateway) config() config {
	return config{Issuer: issuer, JWKSURL: g.url + "/.waiting-room/jwks.json", RevokedURL: g.url + "/.waiting-room/{room}/revoked"}
}

// scenario runs the SDK of a language beside a gateway.
type scenario struct {
	t *testing.T
	d driver
	g *gateway
}

// outcome verifies requests at a time, in seconds from start, and returns their states and reasons, equal ones once.
func (s *scenario) outcome(at int64, requests ...request) string {
	s.t.Helper()
	return s.outcomeOf("main", s.g.config(), at, requests...)
}

func (s *scenario) outcomeOf(id string, c config, at int64, requests ...request) string {
	s.t.Helper()
	var all []string
	for _, r := range s.d.verify(s.t, call{ID: id, Config: c, Now: start + at, Requests: requests, Concurrent: len(requests) > 1}) {
		all = append(all, strings.TrimSpace(r.State+" "+r.Reason))
	}
	return strings.Join(slices.Compact(all), ", ")
}

// newScenario starts the SDK of a language and a gateway. A JVM's first fetch takes seconds on a busy machine, so another gateway warms it up.
func newScenario(t *testing.T, l *language) *scenario {
	t.Helper()
	s := &scenario{t, l.start(t), startGateway(t)}
	s.g.set(func() { s.g.keys = []string{"e1"} })
	for try := range 10 {
		if s.outcomeOf(fmt.Sprint("warm-up ", try), s.g.config(), int64(try)*10, pass("e1", session)) == "pass" {
			break
		}
	}
	s.g = startGateway(t)
	return s
}

func (s *scenario) expect(what, got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func (s *scenario) fetches(what string, keys int) {
	s.t.Helper()
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	if s.g.keyFetches != keys {
		s.t.Errorf("%s: the key set was fetched %d times, want %d", what, s.g.keyFetches, keys)
	}
}

func TestSDKs_CacheKeys(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		s := newScenario(t, l)
		s.g.set(func() { s.g.keys, s.g.delay = []string{"e1", "d1"}, 200*time.Millisecond })
		good, next := pass("e1", session), pass("e2", session)

		s.expect("8 requests at once", s.outcome(0, slices.Repeat([]request{good}, 8)...), "pass")
		s.fetches("8 requests at once", 1)
		s.expect("another algorithm", s.outcome(1, pass("d1", session)), "pass")
		s.expect("an unknown kid, too early", s.outcome(29, next), "invalid kid")
		s.fetches("an unknown kid 29 s after the fetch", 1)
		s.expect("an unknown kid at once", s.outcome(30, slices.Repeat([]request{next}, 8)...), "invalid kid")
		s.fetches("8 requests with an unknown kid 30 s after the fetch", 2)
		s.expect("a good pass after that", s.outcome(31, good), "pass")

		s.g.set(func() { s.g.keys, s.g.delay = []string{"d1", "e1", "e2"}, 0 })
		s.expect("the new key, too early", s.outcome(59, next), "invalid kid")
		s.fetches("a new kid 29 s after the fetch", 2)
		s.expect("the new key", s.outcome(60, next), "pass")
		s.fetches("a new kid 30 s after the fetch", 3)
		s.expect("a good pass 299 s after the fetch", s.outcome(359, good), "pass")
		s.fetches("a known kid 299 s after the fetch", 3)

		s.g.set(func() { s.g.mode = "away" })
		s.expect("a known kid while the gateway is away", s.outcome(1000, slices.Repeat([]request{good}, 8)...), "pass")
		s.expect("an unknown kid while the gateway is away", s.outcome(1030, pass("e3", session)), "invalid kid")
		s.g.set(func() { s.g.mode, s.g.keys = "", []string{"e2"} })
		s.expect("a retired key", s.outcome(2000, good), "invalid kid")
	})
}

func TestSDKs_PollRevoked(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		s := newScenario(t, l)
		s.g.set(func() { s.g.keys, s.g.revoked = []string{"e1"}, []string{another}; s.g.delay = 200 * time.Millisecond })
		mine, theirs := pass("e1", session), pass("e1", another)

		s.expect("8 requests at once", s.outcome(0, slices.Repeat([]request{mine}, 8)...), "pass")
		s.g.set(func() {
			if s.g.listFetches != 1 {
				t.Errorf("8 requests at once fetched the list %d times, want 1", s.g.listFetches)
			}
			s.g.delay = 0
		})
		s.expect("a revoked session", s.outcome(1, theirs), "revoked revoked")
		s.expect("before the next poll", s.outcome(1, mine), "pass")
		s.g.set(func() {
			if s.g.listFetches != 1 {
				t.Errorf("the list was fetched %d times in a second, want 1", s.g.listFetches)
			}
		})
		s.expect("an unchanged list", s.outcome(10, theirs), "revoked revoked")
		s.expect("an unchanged list, again", s.outcome(20, mine), "pass")
		s.g.set(func() {
			if s.g.notModified != 2 {
				t.Errorf("%d of 2 polls had the ETag of the last list", s.g.notModified)
			}
			s.g.revoked = []string{another, session}
		})
		s.expect("3 s after the last poll", s.outcome(23, mine), "revoked revoked")
		s.g.set(func() { s.g.mode = "away" })
		s.expect("revoked, with the gateway away", s.outcome(100, mine), "revoked revoked")
		s.g.set(func() { s.g.mode, s.g.revoked = "redirects", nil })
		s.expect("revoked, with a redirect instead of the list", s.outcome(200, mine), "revoked revoked")
		s.g.set(func() { s.g.mode = "" })
		s.expect("no longer in the list", s.outcome(300, mine, mine, mine, mine), "pass")
	})
}

func TestSDKs_RefuseWithoutKeysOrList(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		s := newScenario(t, l)
		s.g.set(func() { s.g.mode = "away" })
		c := s.g.config()
		s.expect("no key set was ever fetched", s.outcome(0, pass("e1", session)), "invalid keys")
		s.expect("no list was ever fetched", s.outcomeOf("list", config{Issuer: issuer, Secrets: map[string]string{"h1": secretOf("h1")}, RevokedURL: c.RevokedURL}, 0, pass("h1", session)), "invalid revocations")
		s.g.set(func() { s.g.keyFetches = 0 })
		s.expect("soon after the failed fetch", s.outcome(2, pass("e1", session)), "invalid keys")
		s.fetches("2 s after the failed fetch", 0)
		s.g.set(func() { s.g.mode, s.g.keys = "", []string{"e1"} })
		s.expect("3 s after the failed fetch", s.outcome(3, pass("e1", session)), "pass")

		s.g.set(func() { s.g.mode = "hangs" })
		c.RevokedURL = ""
		began := time.Now()
		c.JWKSURL += "?" // another document for PHP's cache
		s.expect("a gateway that does not respond", s.outcomeOf("hangs", c, 100, pass("e1", session)), "invalid keys")
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("the request waited %v for a gateway that does not respond, want 2 s", took)
		}
	})
}

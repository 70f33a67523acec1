package guard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Providers of CAPTCHAs.
const (
	Turnstile = "turnstile"
	HCaptcha  = "hcaptcha"
	ReCaptcha = "recaptcha"
)

// verifiers are the addresses of the providers.
var verifiers = map[string]string{
	Turnstile: "https://challenges.cloudflare.com/turnstile/v0/siteverify",
	HCaptcha:  "https://api.hcaptcha.com/siteverify",
	ReCaptcha: "https://www.google.com/recaptcha/api/siteverify",
}

// Captcha is the CAPTCHA of a room; none without a Provider.
type Captcha struct {
	Provider  string
	SiteKey   string
	Secret    string
	VerifyURL string   // empty: the provider's
	Hosts     []string // on which the CAPTCHA may be solved: names, or *.example.com for every subdomain
	Open      bool     // visitors may join while the provider is away
	Timeout   time.Duration
}

// Sources returns the sources that the page's policy has to allow for the provider: scripts (and their requests), and frames.
func (c *Captcha) Sources() (scripts, frames string) {
	switch c.Provider {
	case Turnstile:
		return "https://challenges.cloudflare.com", "https://challenges.cloudflare.com"
	case HCaptcha:
		return "https://hcaptcha.com https://*.hcaptcha.com", "https://hcaptcha.com https://*.hcaptcha.com"
	case ReCaptcha:
		return "https://www.google.com/recaptcha/ https://www.gstatic.com/recaptcha/", "https://www.google.com/recaptcha/ https://recaptcha.google.com/recaptcha/"
	}
	return "", ""
}

// ErrFailed is returned when the provider rejects a solution. An error that is neither ErrFailed nor ErrRefused means that the
// provider is away.
var ErrFailed = errors.New("guard: the provider rejected the CAPTCHA solution")

// ErrRefused is returned when a solution was not checked although the provider is not away: the provider refused the request (for
// example as one of too many), or failed for the first time, or too many checks are in progress. A flood of solutions can cause each of
// these cases, so ErrRefused must not open a room.
var ErrRefused = errors.New("guard: the CAPTCHA solution was not checked")

const (
	// TokenMost is the length of the longest solution that is sent to a provider, in bytes.
	TokenMost = 8 << 10
	// asksMost is the largest number of concurrent requests of one gateway.
	asksMost = 256
	// asksShare is the largest number of them for one client address; an IPv6 /64 is one address.
	asksShare = asksMost / 16
	// leastScore is the lowest accepted score of reCAPTCHA v3, from 0 (a bot) to 1.
	leastScore = 0.5
)

// Verifier checks solutions with their providers. It keeps connections; Close closes idle ones.
type Verifier struct {
	client *http.Client
	asking chan struct{}
	mu     sync.Mutex
	health map[string]*health // by URL, of providers that did not check the last solution
	shares map[netip.Prefix]int
}

// health counts the failures of a provider since it last checked or refused a solution.
type health struct {
	failures int       // one after the other
	next     time.Time // time of the next call while the provider is away
}

const (
	// rest is the pause between two requests to a provider that is away.
	rest = time.Second
	// failuresAway is the number of failures in a row after which a provider is away. A visitor can cause a single one.
	failuresAway = 3
)

// NewVerifier returns a Verifier.
func NewVerifier() *Verifier {
	transport := http.DefaultTransport.(*http.Transport).Clone() // as it is documented to be
	transport.MaxIdleConnsPerHost, transport.MaxConnsPerHost, transport.IdleConnTimeout = 32, asksMost, time.Minute
	return &Verifier{
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		asking: make(chan struct{}, asksMost), health: map[string]*health{}, shares: map[netip.Prefix]int{},
	}
}

// Close closes the connections that are not in use.
func (v *Verifier) Close() { v.client.CloseIdleConnections() }

// Verify checks the solution of a visitor at an address. A solution is valid once: providers reject a second check as a duplicate.
// The host in the provider's response is compared with c.Hosts, never with a name in the visitor's request.
func (v *Verifier) Verify(ctx context.Context, c *Captcha, token string, address netip.Addr) error {
	if strings.ContainsFunc(token, strange) {
		return fmt.Errorf("%w: the solution has characters that no provider uses", ErrFailed)
	}
	to := cmp.Or(c.VerifyURL, verifiers[c.Provider])
	leave, ok := v.enter(address)
	if !ok {
		return fmt.Errorf("%w: %d checks of solutions from %s are in progress", ErrRefused, asksShare, address)
	}
	defer leave()
	select {
	case v.asking <- struct{}{}:
		defer func() { <-v.asking }()
	default:
		return fmt.Errorf("%w: %d checks with the provider are in progress", ErrRefused, asksMost)
	}
	if !v.due(to, time.Now()) {
		return fmt.Errorf("captcha.provider %s did not respond a moment ago and is not called again yet", c.Provider)
	}
	err := v.ask(ctx, c, to, token, address.String())
	if v.record(to, err, time.Now()) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrRefused, err)
}

// enter takes a share of a client address and returns a function that releases it.
func (v *Verifier) enter(address netip.Addr) (leave func(), ok bool) {
	bits := 32
	if address = address.Unmap(); address.Is6() {
		bits = 64
	}
	client, err := address.WithZone("").Prefix(bits)
	if err != nil {
		return func() {}, true // a visitor without an address
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shares[client] >= asksShare {
		return nil, false
	}
	v.shares[client]++
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.shares[client]--; v.shares[client] == 0 {
			delete(v.shares, client)
		}
	}, true
}

// due reports whether to call the provider now. A provider that is away is called once in a rest, so that only one visitor waits for
// its timeout.
func (v *Verifier) due(to string, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.health[to]
	if h == nil || h.failures < failuresAway {
		return true
	}
	if now.Before(h.next) {
		return false
	}
	h.next = now.Add(rest)
	return true
}

// record records the result of a check, and reports whether err may be returned as it is: a failure counts only if the provider
// is away.
func (v *Verifier) record(to string, err error, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil || errors.Is(err, ErrFailed) || errors.Is(err, ErrRefused) {
		delete(v.health, to)
		return true
	}
	h := v.health[to]
	if h == nil {
		h = &health{}
		v.health[to] = h
	}
	h.failures++
	h.next = now.Add(rest)
	return h.failures >= failuresAway
}

// strange reports whether no provider uses this character in solutions. A proxy in front of the provider might refuse a solution with
// such a character and send a page instead of a result; the solution would then pass with on_fail: open.
func strange(c rune) bool {
	return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("-._~+/=:", c)
}

func (v *Verifier) ask(ctx context.Context, c *Captcha, to, token, address string) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	form := url.Values{"secret": {c.Secret}, "response": {token}, "remoteip": {address}}
	if c.Provider == HCaptcha {
		form.Set("sitekey", c.SiteKey)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := v.client.Do(req)
	if err != nil {
		return fmt.Errorf("captcha.provider %s: %w", c.Provider, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("captcha.provider %s: %w", c.Provider, err)
	}
	var answer struct {
		Success  *bool    `json:"success"`
		Hostname string   `json:"hostname"`
		Score    *float64 `json:"score"`
		Errors   []string `json:"error-codes"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Success == nil || res.StatusCode >= 500 {
		err := fmt.Errorf("captcha.provider %s responded with %s and no result", c.Provider, res.Status)
		if res.StatusCode/100 == 4 {
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return err
	}
	switch { // with 400 too: Cloudflare rejects solutions with that status
	case *answer.Success && !onHost(c.Hosts, answer.Hostname):
		return fmt.Errorf("%w: the solution is for host %q, which is neither a host of the room nor in captcha.hosts", ErrFailed, clip(answer.Hostname))
	case *answer.Success && answer.Score != nil && *answer.Score < leastScore && c.Provider == ReCaptcha:
		return fmt.Errorf("%w: the score of the solution is %g", ErrFailed, *answer.Score)
	case *answer.Success:
		return nil
	}
	for _, code := range answer.Errors {
		switch code {
		case "missing-input-secret", "invalid-input-secret", "sitekey-secret-mismatch", "invalid-keys", "internal-error":
			// A visitor cannot cause these.
			return fmt.Errorf("captcha.provider %s: %s", c.Provider, clip(code))
		}
	}
	return fmt.Errorf("%w: %s", ErrFailed, clip(strings.Join(answer.Errors, " ")))
}

// onHost reports whether a host is one of hosts. Providers return the host of every solution, so an empty host matches none.
func onHost(hosts []string, host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	for _, pattern := range hosts {
		pattern = strings.TrimSuffix(strings.ToLower(pattern), ".")
		if suffix, ok := strings.CutPrefix(pattern, "*"); ok && len(suffix) > 1 {
			if len(host) > len(suffix) && strings.HasSuffix(host, suffix) {
				return true
			}
		} else if pattern == host && host != "" {
			return true
		}
	}
	return false
}

func clip(s string) string {
	if len(s) > 100 {
		s = s[:100]
	}
	return strings.ToValidUTF8(s, "?")
}

package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// verifiers are where each provider is asked.
var verifiers = map[string]string{
	Turnstile: "https://challenges.cloudflare.com/turnstile/v0/siteverify",
	HCaptcha:  "https://api.hcaptcha.com/siteverify",
	ReCaptcha: "https://www.google.com/recaptcha/api/siteverify",
}

// Captcha is a room's, as the configuration says; without a Provider there is none.
type Captcha struct {
	Provider  string
	SiteKey   string
	Secret    string
	VerifyURL string // empty: the provider's
	Open      bool   // who joins while the provider does not answer gets a place
	Timeout   time.Duration
}

// Sources are what the page's policy has to allow of the provider: scripts (and what those ask for), and frames.
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

// ErrFailed means that the provider has judged and said no; any other error that it has not judged.
var ErrFailed = errors.New("guard: the captcha's answer does not count")

// ErrBusy means that too many questions to the provider are under way.
var ErrBusy = errors.New("guard: too many questions to the provider are under way")

const (
	// TokenMost is the longest answer that is passed on to a provider, in bytes.
	TokenMost = 8 << 10
	// asksMost is how many questions one gateway asks at once.
	asksMost = 256
	// leastScore is what reCAPTCHA v3 has to give, from 0 (a bot) to 1.
	leastScore = 0.5
)

// Verifier asks providers. It keeps connections; Close closes those that are idle.
type Verifier struct {
	client *http.Client
	asking chan struct{}
	mu     sync.Mutex
	down   map[string]time.Time // addresses that did not answer, and till when nobody waits for them
}

// rest is for how long a provider that did not answer is not asked again.
const rest = time.Second

// NewVerifier makes a Verifier.
func NewVerifier() *Verifier {
	transport := http.DefaultTransport.(*http.Transport).Clone() // as it is documented to be
	transport.MaxIdleConnsPerHost, transport.MaxConnsPerHost, transport.IdleConnTimeout = 32, asksMost, time.Minute
	return &Verifier{
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		asking: make(chan struct{}, asksMost), down: map[string]time.Time{},
	}
}

// Close closes the connections that are not in use.
func (v *Verifier) Close() { v.client.CloseIdleConnections() }

// Verify asks whether an answer counts, of a visitor at that address and on that host. An answer counts once: providers say
// of a second question that it is a duplicate.
func (v *Verifier) Verify(ctx context.Context, c *Captcha, token, address, host string) error {
	if strings.ContainsFunc(token, strange) {
		return fmt.Errorf("%w: no provider gives such an answer", ErrFailed)
	}
	to := c.VerifyURL
	if to == "" {
		to = verifiers[c.Provider]
	}
	v.mu.Lock()
	down := time.Now().Before(v.down[to])
	v.mu.Unlock()
	if down {
		return fmt.Errorf("captcha.provider %s did not answer a moment ago", c.Provider)
	}
	err := v.ask(ctx, c, to, token, address, host)
	if err != nil && !errors.Is(err, ErrFailed) && !errors.Is(err, ErrBusy) {
		v.mu.Lock()
		v.down[to] = time.Now().Add(rest)
		v.mu.Unlock()
	}
	return err
}

// strange tells what no answer of a provider holds. Such a one might be refused by what stands in front of the provider, with
// a page in place of a judgement, and so pass where on_fail is open.
func strange(c rune) bool {
	return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("-._~+/=:", c)
}

func (v *Verifier) ask(ctx context.Context, c *Captcha, to, token, address, host string) error {
	select {
	case v.asking <- struct{}{}:
		defer func() { <-v.asking }()
	default:
		return ErrBusy
	}
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
	// Cloudflare says with 400 that an answer does not count.
	if err := json.Unmarshal(body, &answer); err != nil || answer.Success == nil || res.StatusCode >= 500 {
		return fmt.Errorf("captcha.provider %s answered %s and no judgement", c.Provider, res.Status)
	}
	switch {
	case *answer.Success && answer.Hostname != "" && !strings.EqualFold(answer.Hostname, host):
		return fmt.Errorf("%w: it was given on %q, not on this host", ErrFailed, clip(answer.Hostname))
	case *answer.Success && answer.Score != nil && *answer.Score < leastScore && c.Provider == ReCaptcha:
		return fmt.Errorf("%w: its score is %g", ErrFailed, *answer.Score)
	case *answer.Success:
		return nil
	}
	for _, code := range answer.Errors {
		switch code {
		case "missing-input-secret", "invalid-input-secret", "sitekey-secret-mismatch", "invalid-keys", "internal-error":
			// Nothing that a visitor sends brings these about.
			return fmt.Errorf("captcha.provider %s: %s", c.Provider, clip(code))
		}
	}
	return fmt.Errorf("%w: %s", ErrFailed, clip(strings.Join(answer.Errors, " ")))
}

func clip(s string) string {
	if len(s) > 100 {
		s = s[:100]
	}
	return strings.ToValidUTF8(s, "?")
}

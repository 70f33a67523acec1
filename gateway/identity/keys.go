// Package identity returns the account that a site's own JWT names. It fetches the site's public keys, uses the cached keys
// while a fetch fails, and remembers the tokens that it has checked.
//
// New makes Keys for an address, Run fetches them, and Account checks a token.
package identity

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	neturl "net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/internal/table"
	"github.com/anteroom/anteroom/token"
)

const (
	refresh    = 5 * time.Minute  // between two fetches after a success
	retry      = 15 * time.Second // and after a failure
	apart      = 5 * time.Second  // the least time between two fetches, however many tokens name unknown keys
	patience   = time.Second      // how long a request waits for keys that are being fetched
	fetchLimit = 5 * time.Second
	sizeLimit  = 1 << 20 // bytes of a key set
)

// ErrNoKeys is returned until keys have been fetched for the first time.
var ErrNoKeys = errors.New("identity: the keys of identity.jwks_url have not been fetched yet")

// Keys are a site's public keys, by their address. Its methods are safe for concurrent use.
type Keys struct {
	url     string
	name    string // url without a password
	log     *slog.Logger
	observe func(ok bool)
	client  *http.Client
	current atomic.Pointer[token.AccountKeys]
	checked *table.Table[*checked]
	skipped string // the unusable keys of the last set, as logged; only Run uses it

	mu    sync.Mutex
	tried time.Time     // when the last fetch began
	next  chan struct{} // closed when the requested or running fetch has ended; nil: there is none
	wake  chan struct{}
}

// New returns keys that Run fetches. observe, if not nil, is called after every fetch.
func New(url string, log *slog.Logger, observe func(ok bool)) *Keys {
	if observe == nil {
		observe = func(bool) {}
	}
	name := ""
	if u, err := neturl.Parse(url); err == nil {
		name = u.Redacted()
	}
	return &Keys{
		checked: table.New[*checked](checkedSize),
		url:     url, name: name, log: log, observe: observe, wake: make(chan struct{}, 1),
		client: &http.Client{
			Timeout:   fetchLimit,
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSHandshakeTimeout: fetchLimit},
			CheckRedirect: func(next *http.Request, via []*http.Request) error {
				switch {
				case len(via) > 3:
					return errors.New("more than three redirects")
				case via[0].URL.Scheme == "https" && next.URL.Scheme != "https":
					return errors.New("a redirect away from https, where an attacker in between could name accounts")
				}
				return nil
			},
		},
	}
}

// Run fetches the keys at once, every few minutes, and when a token names one that is not known, until ctx ends.
func (k *Keys) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-timer.C:
		}
		k.mu.Lock()
		select {
		case <-k.wake: // requested while the timer ran out: one fetch serves both
		default:
		}
		if k.next == nil {
			k.next = make(chan struct{})
		}
		done := k.next
		k.tried = time.Now()
		k.mu.Unlock()

		keys, err := k.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		k.observe(err == nil)
		after := refresh
		if err != nil {
			if !failing {
				k.log.Warn("cannot fetch identity.jwks_url; using the cached keys", "url", k.name, "known", k.current.Load() != nil, "error", err)
			}
			after = retry
		} else {
			if failing {
				k.log.Info("identity.jwks_url can be fetched again", "url", k.name)
			}
			k.current.Store(keys)
			k.warnSkipped(keys)
		}
		failing = err != nil
		timer.Reset(after)
		k.mu.Lock()
		k.next = nil
		k.mu.Unlock()
		close(done)
	}
}

// warnSkipped logs the keys of a set that cannot be used, once for each set.
func (k *Keys) warnSkipped(keys *token.AccountKeys) {
	list := errors.Join(keys.Skipped...)
	text := fmt.Sprint(list)
	if list != nil && text != k.skipped {
		k.log.Warn("some keys of identity.jwks_url cannot be used; tokens that they signed are refused", "url", k.name, "error", list)
	}
	k.skipped = text
}

func (k *Keys) fetch(ctx context.Context) (*token.AccountKeys, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := k.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the response has status %d instead of 200", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, sizeLimit+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > sizeLimit:
		return nil, fmt.Errorf("more than %d bytes", sizeLimit)
	}
	return token.ParseAccountKeys(body)
}

// checked is a token that was valid with these keys and rules. It is immutable.
type checked struct {
	sum     [sha256.Size]byte
	keys    *token.AccountKeys
	rules   *token.AccountRules
	account string
}

// checkedSize is the number of valid tokens that are remembered, so that not every poll verifies a signature.
const checkedSize = 1 << 15

// lookup returns the account of a token that was checked, and otherwise the token's hash.
func (k *Keys) lookup(raw []byte, keys *token.AccountKeys, rules *token.AccountRules, now int64) (account string, sum [sha256.Size]byte, ok bool) {
	sum = sha256.Sum256(raw)
	c, _, ok := k.checked.Use(tableKey(sum), now)
	if !ok || c.sum != sum || c.keys != keys || c.rules != rules {
		return "", sum, false
	}
	return c.account, sum, true
}

func tableKey(sum [sha256.Size]byte) uint64 { return binary.LittleEndian.Uint64(sum[:]) }

// Known returns the account that a JWT names if the JWT was checked before.
func (k *Keys) Known(raw []byte, rules *token.AccountRules, now int64) (account string, ok bool) {
	if len(raw) > token.AccountMaxLength {
		return "", false
	}
	account, _, ok = k.lookup(raw, k.current.Load(), rules, now)
	return account, ok
}

// Account returns the account that a JWT names. now is in seconds of the store's clock. The error is a token.Rejection, or
// ErrNoKeys. A token with an unknown key waits, for at most a second, for a fetch of the keys; such a fetch is made at most once
// in five seconds, whatever tokens are sent. rules must be the same pointer for the same rules.
func (k *Keys) Account(ctx context.Context, raw []byte, rules *token.AccountRules, now int64) (string, error) {
	if len(raw) > token.AccountMaxLength {
		return "", token.ErrTooLong
	}
	keys := k.current.Load()
	known, sum, ok := k.lookup(raw, keys, rules, now)
	if ok {
		return known, nil
	}
	account, expires, err := check(keys, raw, rules, now)
	if keys == nil || errors.Is(err, token.ErrKey) {
		if fetched := k.newer(ctx, keys); fetched != keys {
			keys = fetched
			account, expires, err = check(keys, raw, rules, now)
		}
	}
	if err == nil {
		k.checked.Put(tableKey(sum), now, &checked{sum, keys, rules, account}, expires)
	}
	return account, err
}

func check(keys *token.AccountKeys, raw []byte, rules *token.AccountRules, now int64) (string, int64, error) {
	if keys == nil {
		return "", 0, ErrNoKeys
	}
	return keys.Account(string(raw), rules, now)
}

// newer returns the current keys. If they are still those that the caller has, it first waits for a fetch, if one is due.
func (k *Keys) newer(ctx context.Context, had *token.AccountKeys) *token.AccountKeys {
	k.mu.Lock()
	done := k.next
	if done == nil && k.current.Load() == had && time.Since(k.tried) >= apart {
		done = make(chan struct{})
		k.next = done
		k.wake <- struct{}{} // never blocks: wake is empty while next is nil
	}
	k.mu.Unlock()
	if done != nil {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return k.current.Load()
}

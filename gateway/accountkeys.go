package gateway

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/identity"
)

// accountKeys are the keys of one jwks_url, with the loop that fetches them.
type accountKeys struct {
	*identity.Keys
	once sync.Once
	stop context.CancelFunc
	life context.Context
}

// keysOf returns the keys of a room's jwks_url: the running ones where there are any, nil where it has none.
func keysOf(g *Gateway, i Identity, s, old *state) *accountKeys {
	if i.JWKSURL == "" || !i.OnePlace {
		return nil
	}
	k := s.keys[i.JWKSURL]
	if k == nil && old != nil {
		k = old.keys[i.JWKSURL]
	}
	if k == nil {
		k = &accountKeys{Keys: identity.New(i.JWKSURL, g.log, g.metrics.FetchedKeys)}
		k.life, k.stop = context.WithCancel(g.life.ctx)
	}
	s.keys[i.JWKSURL] = k
	return k
}

func (k *accountKeys) start(g *Gateway) {
	k.once.Do(func() { g.life.background.Go(func() { k.Run(k.life) }) })
}

// accountHeaders returns the header fields that name the rooms' accounts, in lower case.
func accountHeaders(rooms []*room) (names []string) {
	for _, r := range rooms {
		if name := strings.ToLower(r.options.Identity.Header); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// anySpelling returns a function that reports whether an origin could take a header field for one of names, except for fields
// that are spelled as one of but. Both lists are in lower case. It returns nil without names.
func anySpelling(names, but []string) func(name []byte) bool {
	if len(names) == 0 {
		return nil
	}
	var lengths uint64 // bit n: a name of n bytes, with those of 63 and more in the last
	for _, n := range names {
		lengths |= 1 << min(len(n), 63)
	}
	return func(name []byte) bool {
		return lengths>>min(len(name), 63)&1 != 0 &&
			slices.ContainsFunc(names, func(n string) bool { return http1.IsAlias(name, n) }) &&
			!slices.ContainsFunc(but, func(n string) bool { return client.EqualFold(name, n) })
	}
}

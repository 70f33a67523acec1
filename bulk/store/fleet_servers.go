package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// server is one of the clients of a Fleet, with its shards by number. Nothing is written to it before check has found that it may
// have them: a mark of a shard on a server of another one would make a start with the right list fail.
type server struct {
	shards []*shard
	first  *server // the one of shard 0, whose placements show whether the list is too short
	at, of int     // its place in store.urls
	fit    atomic.Bool
}

// serversOf divides shards among their clients.
func serversOf(all []*Store) (servers []*server) {
	for _, s := range all {
		i := slices.IndexFunc(servers, func(v *server) bool { return v.shards[0].o.Client == s.o.Client })
		if i < 0 {
			i = len(servers)
			servers = append(servers, &server{at: i})
		}
		servers[i].shards = append(servers[i].shards, s.shard)
		s.server = servers[i]
	}
	for _, v := range servers {
		v.first, v.of = servers[0], len(servers)
	}
	return servers
}

// name returns the setting that names the server.
func (v *server) name() string {
	if v.of == 1 {
		return "store.url"
	}
	return fmt.Sprintf("store.urls[%d]", v.at)
}

// check returns an error that wraps ErrShards if the data on the server is not that of its shards: the list of servers was reordered
// or changed in length. It writes nothing, and reads nothing after it has succeeded once.
func (v *server) check(ctx context.Context) error {
	if v == nil || v.fit.Load() {
		return nil
	}
	if v != v.first {
		if err := v.first.check(ctx); errors.Is(err, ErrShards) {
			return err
		}
	}
	s := v.shards[0]
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	var first *redis.SliceCmd
	layouts := make([]*redis.IntCmd, MaxShards)
	// One round trip. A pipeline, because the keys are in several slots. Server 0 marks shard 0 last, so it is read first.
	_, err := s.o.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		first = p.HMGet(ctx, layoutKey(s.o.Prefix, 0), "version", "placements")
		for n := range layouts {
			layouts[n] = p.Exists(ctx, layoutKey(s.o.Prefix, n))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	if err := v.fits(first.Val(), func(n int) bool { return layouts[n].Val() > 0 }); err != nil {
		return err
	}
	v.fit.Store(true)
	return nil
}

// fits compares what a server has with its shards. first has the version and the placements of shard 0.
func (v *server) fits(first []any, has func(n int) bool) error {
	o := &v.shards[0].o
	installed, count := first[0] != nil, 0
	if text, there := first[1].(string); there && installed {
		p, err := parsePlacements(text)
		if err != nil {
			return err
		}
		count = p.count()
	}
	if v.at == 0 && count > o.Shards {
		return tooFewShards(o.Prefix, count, o.Shards)
	}
	_, cluster := o.Client.(*redis.ClusterClient) // a node of it may have lost its data alone
	for n := range MaxShards {
		own := slices.ContainsFunc(v.shards, func(s *shard) bool { return s.o.Shard == n })
		switch {
		case has(n) && !own && (v.of > 1 || !installed && !cluster): // one server has all shards that were configured once
			return fmt.Errorf("%w: %s has the data of shard %d, which the configuration puts elsewhere: restore the former order and number of store.urls", ErrShards, v.name(), n)
		case v.at == 0 && own && n > 0 && has(n) && !installed && first[1] == nil && !cluster: // its placements come before any mark
			return fmt.Errorf("%w: %s has the data of shard %d, but nothing of shard 0, which is on another server: restore the former order and number of store.urls", ErrShards, v.name(), n)
		case v.at == 0 && own && n < count && !has(n) && !cluster:
			return fmt.Errorf("%w: %s has shard 0 of an installation with %d shards, but nothing of shard %d, which is on another server: restore the former order and number of store.urls", ErrShards, v.name(), count, n)
		}
	}
	return nil
}

// placedBy returns shard 0 if its placements have to be recorded before s is marked: s is shard 0, or beside it on one server.
func (v *server) placedBy(s *shard) *shard {
	if s.o.Shard == 0 {
		return s
	}
	if _, cluster := s.o.Client.(*redis.ClusterClient); v == nil || v != v.first || cluster {
		return nil
	}
	return v.shards[0]
}

// claimOthers marks the other shards of the server of shard 0, before shard 0 itself: where shard 0 is marked, the others are.
func (v *server) claimOthers(ctx context.Context) error {
	if v == nil {
		return nil
	}
	for _, s := range v.shards[1:] {
		if err := s.scripts.Prepare(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Check returns an error that wraps ErrShards if the data on a server is not that of the shards that the configuration puts there.
// Servers that do not reply are not checked. It writes nothing.
func (f *allShards) Check(ctx context.Context) error {
	if len(f.servers) == 0 {
		return nil
	}
	if err := f.servers[0].check(ctx); errors.Is(err, ErrShards) {
		return err
	}
	errs := make([]error, len(f.servers))
	var wg sync.WaitGroup
	for i, v := range f.servers {
		wg.Go(func() {
			if err := v.check(ctx); !errors.Is(err, ErrStore) {
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func tooFewShards(prefix string, has, configured int) error {
	return fmt.Errorf("%w: the installation with prefix %q has %d shards: set shards: %d (not %d) and list the same servers in store.urls", ErrShards, prefix, has, has, configured)
}

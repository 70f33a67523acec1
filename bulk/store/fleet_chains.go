package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Groups may wait for groups on other shards. The group has an entry for each such predecessor, and the predecessor's shard has one for the
// group (lua/lib/bulklife.lua). The predecessor's housekeeping names its entries once it has ended, and Chain records the end on their shards.
// In case an entry was lost, the housekeeping of the group asks for the end now and then. Every step may be repeated, by any process.

// chainStore has the calls of one shard for chains over shards.
type chainStore struct{ groupStore }

// follower is a group that waits for one on another shard.
type follower struct {
	shard int
	group string
}

// ending is the state of a predecessor: its status in the script's words, "-" until it has ended, and when it was created.
type ending struct{ status, created string }

const notEnded = "-"

// followedBy runs group_follow for a group of this shard.
func (s chainStore) followedBy(ctx context.Context, verb, group, created string, who ...follower) (ending, reply, error) {
	args := []any{group, verb, created}
	for _, f := range who {
		args = append(args, f.shard, f.group)
	}
	r, err := s.run(ctx, "group_follow", args...)
	switch {
	case err != nil:
		return ending{}, nil, err
	case r.refusal() == "followed":
		return ending{}, nil, tooManyFollowers(group)
	case r.refusal() != "":
		return ending{}, nil, groupRefusal(r.refusal(), group, r)
	}
	return ending{r.string(0), r.string(1)}, r[2:], nil
}

// resume runs group_resume for groups of this shard that wait for a group of another one, and returns a code for each.
func (s chainStore) resume(ctx context.Context, shard int, group string, e ending, waiting []string) ([]int64, error) {
	args := []any{predecessorMark(shard, e.created), group, e.status}
	for _, id := range waiting {
		args = append(args, id)
	}
	r, err := s.write(ctx, "group_resume", args...)
	if err != nil {
		return nil, err
	}
	codes := make([]int64, len(waiting))
	for i := range codes {
		codes[i] = r.int(i)
	}
	return codes, nil
}

// predecessorMark names a group of another shard in links.
func predecessorMark(shard int, created string) string {
	return "@" + strconv.Itoa(shard) + ":" + created
}

// crowded is the refusal of a group that waits for one for which too many groups wait.
type crowded struct {
	*Refusal
	group string
}

func (c *crowded) Unwrap() error { return c.Refusal }

func tooManyFollowers(group string) error {
	return &crowded{refuse(CodeInvalid, "after: too many groups wait for group %q already; let this one wait for one of them", group), group}
}

func noPredecessor(id string) error {
	return refuse(CodeInvalid, "after: there is no group %q; create the groups that it waits for first", id)
}

// createChained calls create for a group with predecessors, after their shards have an entry for it. Where too many groups wait for one of
// them, it first removes the entries of those that no longer do.
func (f fleetChains) createChained(ctx context.Context, s *Store, g GroupSpec, create func(g GroupSpec) (Group, bool, error)) (group Group, created bool, err error) {
	for again := true; ; again = false {
		entered, err := f.enter(ctx, s, &g)
		if err == nil {
			group, created, err = create(g)
		}
		if _, refused := errors.AsType[*Refusal](err); refused || group.Duplicate {
			f.leave(ctx, s, g.ID, entered)
		}
		full, isFull := errors.AsType[*crowded](err)
		if !isFull || !again || !f.prune(ctx, full.group) {
			return group, created, err
		}
	}
}

// predecessor is a group on another shard.
type predecessor struct {
	on *Store
	id string
	ending
}

// enter writes an entry for a new group on the shards of its predecessors other than s, and returns these. A group that exists has
// its entries.
func (f fleetChains) enter(ctx context.Context, s *Store, g *GroupSpec) (entered []predecessor, err error) {
	switch _, err := s.short(ctx, g.ID); {
	case err == nil:
		return nil, nil
	case !isCode(err, CodeNotFound):
		return nil, err
	}
	if g.Split > 1 {
		if err := f.allChain(ctx, s, g); err != nil {
			return nil, err
		}
	}
	var words []string
	for id := range strings.FieldsSeq(g.After) {
		p, err := f.parts(ctx, id)
		if err != nil {
			return entered, err
		}
		if p[0] == s {
			words = append(words, id)
			continue
		}
		if len(entered) == 0 {
			if err := f.allChain(ctx, s, g); err != nil {
				return nil, err
			}
		}
		e, _, err := p[0].followedBy(ctx, "enter", id, "0", follower{s.o.Shard, g.ID})
		if isCode(err, CodeNotFound) {
			err = noPredecessor(id)
		}
		if err != nil {
			return entered, err
		}
		entered = append(entered, predecessor{p[0], id, e})
		words = append(words, id+predecessorMark(p[0].o.Shard, e.created)+":"+e.status)
	}
	g.predecessors = strings.Join(words, " ")
	return entered, nil
}

// allChain returns an error while a process of an earlier version works on a shard: it would cancel a group that waits for other shards,
// and start the parts of a split one.
func (f fleetChains) allChain(ctx context.Context, s *Store, g *GroupSpec) error {
	processes, err := s.Processes(ctx)
	if err != nil {
		return shardError(s.o.Shard, err)
	}
	for _, p := range processes {
		if !p.Chains || g.Split > 1 && !p.SplitChains {
			return refuse(CodeState, "after: process %s on %s is of an earlier version, which does not support groups that wait for groups on other shards, or split groups that wait; upgrade every process, then repeat this request", p.ID, cmp.Or(p.Host, "an unknown host"))
		}
	}
	return nil
}

// leave removes the entries of a group that was not created. An entry that stays is removed at the end of its predecessor.
func (f fleetChains) leave(ctx context.Context, s *Store, group string, entered []predecessor) {
	for _, p := range entered {
		if _, _, err := p.on.followedBy(ctx, "leave", p.id, p.created, follower{s.o.Shard, group}); err != nil {
			s.o.Log.Debug("the entry of a group that was not created stays until its predecessor ends", "group", group, "predecessor", p.id, "error", err)
		}
	}
}

// prune removes the entries of groups on other shards that no longer wait for a group, and reports whether there were any.
func (f fleetChains) prune(ctx context.Context, group string) bool {
	p, err := f.parts(ctx, group)
	if err != nil {
		return false
	}
	e, entries, err := p[0].followedBy(ctx, "list", group, "0")
	if err != nil {
		return false
	}
	lines := make([]string, len(entries))
	for i := range entries {
		lines[i] = entries.string(i)
	}
	e.status = notEnded
	gone, _ := f.recordEnd(ctx, p[0].o.Shard, group, e, parseFollowers(lines), func(code int64) bool { return code != replyWaiting })
	if len(gone) == 0 {
		return false
	}
	_, _, err = p[0].followedBy(ctx, "leave", group, e.created, gone...)
	return err == nil
}

// parseFollowers parses lines of a shard and an id.
func parseFollowers(lines []string) (all []follower) {
	for _, line := range lines {
		shard, id, _ := strings.Cut(line, " ")
		all = append(all, follower{int(asInt(shard)), id})
	}
	return all
}

// recordEnd calls resume on the shards of groups that wait for a group of the shard n, at the same time, and returns those whose code is
// accepted.
func (f fleetChains) recordEnd(ctx context.Context, n int, group string, e ending, waiting []follower, accept func(code int64) bool) (accepted []follower, err error) {
	byShard := map[int][]string{}
	for _, w := range waiting {
		byShard[w.shard] = append(byShard[w.shard], w.group)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for shard, ids := range byShard {
		wg.Go(func() {
			var codes []int64
			failed := f.reach(shard, func(s *Store) (err error) {
				codes, err = s.resume(ctx, n, group, e, ids)
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			err = errors.Join(err, failed)
			for i, code := range codes {
				if accept(code) {
					accepted = append(accepted, follower{shard, ids[i]})
				}
			}
		})
	}
	wg.Wait()
	return accepted, err
}

// unreachedFor is how long a chain does not call a shard again that did not reply: otherwise many of them would wait for its time-out,
// one after the other.
const unreachedFor = time.Second

// unreached has the shards that did not reply to a chain.
type unreached struct {
	mu    sync.Mutex
	since map[int]time.Time
}

// reach calls do with a shard, unless that did not reply just before.
func (f fleetChains) reach(n int, do func(s *Store) error) error {
	if n < 0 || n >= len(f.shards) {
		return fmt.Errorf("%w: shard %d was added; restart this process with shards: %d", ErrStore, n, n+1)
	}
	u := &f.unreached
	u.mu.Lock()
	last, failed := u.since[n]
	u.mu.Unlock()
	if failed && time.Since(last) < unreachedFor {
		return shardError(n, fmt.Errorf("%w: no reply a moment ago", ErrStore))
	}
	err := do(f.shards[n])
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.since == nil {
		u.since = map[int]time.Time{}
	}
	if delete(u.since, n); errors.Is(err, ErrStore) {
		u.since[n] = time.Now()
	}
	return err
}

// chainStep is what a step of a group's housekeeping names for Chain.
type chainStep struct {
	ending
	orphans   bool          // waiting groups that do not exist are forgotten
	followers []follower    // that have to get the end
	asks      []predecessor // whose end the group has to ask for; without the Store
	shards    []int         // of asks
}

// parseChain parses the reply of lua/group_tend.lua from the status on.
func parseChain(r reply) (c chainStep) {
	if len(r) < 4 {
		return c
	}
	c.ending, c.orphans = ending{r.string(0), r.string(1)}, r.int(2) == 1
	for i := 3; i < len(r); i++ {
		kind, line, _ := strings.Cut(r.string(i), " ")
		if kind == "r" {
			c.followers = append(c.followers, parseFollowers([]string{line})...)
			continue
		}
		from, id, _ := strings.Cut(line, " ")
		shard, created, _ := strings.Cut(from, ":")
		c.asks, c.shards = append(c.asks, predecessor{id: id, ending: ending{created: created}}), append(c.shards, int(asInt(shard)))
	}
	return c
}

// Chain does what a step of the housekeeping of a group on shard n has named: it records the end of the group on the shards of the
// groups that wait for it, or the ends of the groups on other shards that it waits for. While a shard is away, the error is an ErrStore, and
// the housekeeping names the group again.
func (f fleetChains) Chain(ctx context.Context, n int, group string, t Tended) error {
	return errors.Join(f.handOver(ctx, n, group, &t.chain), f.ask(ctx, n, group, &t.chain))
}

// handOver records the end of a group on the shards of the groups that wait for it, and then removes their entries.
func (f fleetChains) handOver(ctx context.Context, n int, group string, c *chainStep) error {
	if len(c.followers) == 0 {
		return nil
	}
	have, err := f.recordEnd(ctx, n, group, c.ending, c.followers, func(code int64) bool { return code == replyNotWaiting || c.orphans })
	if len(have) == 0 {
		return err
	}
	_, _, failed := f.shards[n].followedBy(ctx, "leave", group, c.created, have...)
	if isCode(failed, CodeNotFound) {
		failed = nil // deleted since
	}
	return errors.Join(err, failed)
}

// ask asks for the ends of a group's predecessors, and writes entries that are missing there. A predecessor that no longer exists counts
// as cancelled: the data of its shard was lost.
func (f fleetChains) ask(ctx context.Context, n int, group string, c *chainStep) (err error) {
	for i, p := range c.asks {
		err = errors.Join(err, f.reach(c.shards[i], func(s *Store) error {
			e, _, err := s.followedBy(ctx, "check", p.id, p.created, follower{n, group})
			if isCode(err, CodeNotFound) {
				e, err = ending{status: strconv.Itoa(statusNumber(Cancelled))}, nil
			}
			if err != nil || e.status == notEnded {
				return err
			}
			e.created = p.created
			_, err = f.shards[n].resume(ctx, s.o.Shard, p.id, e, []string{group})
			return err
		}))
	}
	return err
}

// deleteWhole deletes a group that is not split, or the first part of one, whose end other shards may not have yet.
func (f fleetChains) deleteWhole(ctx context.Context, s *Store, group string, patience time.Duration) (gone bool, err error) {
	return s.delete(ctx, group, patience, func(t Tended) error { return f.Chain(ctx, s.o.Shard, group, t) })
}

package relay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/client"
)

// groupName returns the id of the relay's nth group (from 1) for a tenant and a type on a day. A tenant has no colon, so two
// tenants never share a name.
func groupName(tenant, kind string, day time.Time, n int) string {
	who := tenant + ":" + strings.ReplaceAll(kind, "/", ":")
	if len(who) > 100 {
		sum := sha256.Sum256([]byte(tenant + "\x00" + kind))
		who = hex.EncodeToString(sum[:16])
	}
	name := "outbox:" + who + day.UTC().Format(":20060102")
	if n > 1 {
		name += fmt.Sprintf(".%d", n)
	}
	return name
}

// groups caches the states of groups.
type groups struct {
	open   map[string]openGroup // groups that accept jobs
	closed map[string]bool      // sealed or ended
}

// openGroup is a group that accepts jobs.
type openGroup struct {
	created time.Time
	kind    string // type of jobs without one
}

// target identifies a group. A group that gets the same id after a deletion is another target.
type target struct {
	group   string
	created time.Time
}

// again ends sent_to of a row that may also have been sent by a later batch than the one that wrote the mark.
const again = " again"

// mark returns the sent_to of a row that is about to be sent.
func (t target) mark() string { return t.group + " " + t.created.UTC().Format(time.RFC3339Nano) }

// target returns the group in the mark of a row. If the mark has no time, any group with the id is meant.
func (w *row) target() (t target) {
	group, created, _ := strings.Cut(strings.TrimSuffix(w.sentTo.String, again), " ")
	t.group = group
	t.created, _ = time.Parse(time.RFC3339Nano, created) // zero if there is none
	return t
}

// maxKnown bounds the cache of groups. The relay asks the server again for a group that is no longer in it.
const maxKnown = 10_000

func newGroups() groups { return groups{map[string]openGroup{}, map[string]bool{}} }

func (g *groups) forget() {
	if len(g.open)+len(g.closed) > maxKnown {
		*g = newGroups()
	}
}

func (g *groups) close(id string) {
	delete(g.open, id)
	g.closed[id] = true
}

// choose returns the group for a new row, and creates it if needed. An error is a refusal or an outage.
func (r *Relay) choose(ctx context.Context, w *row, now time.Time) (target, error) {
	if w.group.Valid {
		return r.ensure(ctx, w.group.String, w)
	}
	for n := 1; n <= 1000; n++ {
		id := groupName(w.tenant, w.kind, r.o.day(now), n)
		if r.groups.closed[id] {
			continue
		}
		to, err := r.ensure(ctx, id, w)
		if _, closed := errors.AsType[*closedError](err); closed {
			continue
		}
		return to, err
	}
	return target{}, &client.Problem{Status: http.StatusTooManyRequests, Code: "sealed", Detail: "the tenant has a thousand sealed groups of this type today: find the program that seals them"}
}

// closedError is returned for a group that accepts no more jobs.
type closedError struct{ group string }

func (e *closedError) Error() string {
	return fmt.Sprintf("group %q is sealed: it accepts no more jobs", e.group)
}

// foreignError is returned for a group of another tenant.
type foreignError struct{ group, tenant string }

func (e *foreignError) Error() string {
	return fmt.Sprintf("group %q does not belong to tenant %q: use another group_id", e.group, e.tenant)
}

// ensure creates a group unless it exists. It must return before a row is marked with the group, so that an unknown group of a
// marked row is known to be deleted.
func (r *Relay) ensure(ctx context.Context, id string, w *row) (to target, err error) {
	if r.groups.closed[id] {
		return to, &closedError{id}
	}
	if g, known := r.groups.open[id]; known {
		return target{id, g.created}, nil
	}
	spec := client.GroupSpec{ID: id, Tenant: w.tenant, Type: w.kind}
	if !w.group.Valid {
		spec.FailureTolerance = "100%" // a stream of unrelated jobs, of which some fail
	}
	g, err := r.o.Client.CreateGroup(ctx, spec)
	if p, ok := errors.AsType[*client.Problem](err); ok && p.Code == "exists" {
		g, err = r.o.Client.Group(ctx, id) // it has settings of another program
		if p, ok := errors.AsType[*client.Problem](err); ok && p.Code == "not_found" {
			err = &client.Problem{Status: http.StatusTooManyRequests, Code: "exists", Detail: "group " + id + " is being deleted"}
		}
	}
	switch {
	case err != nil:
		return to, err
	case g.Tenant != w.tenant:
		return to, &foreignError{id, w.tenant}
	case g.Sealed || g.Status.Ended():
		r.groups.close(id)
		return to, &closedError{id}
	}
	r.groups.open[id] = openGroup{g.CreatedAt, g.Type}
	return target{id, g.CreatedAt}, nil
}

// by iterates over the rows of each key, in the order in which the keys first appear.
func by[K comparable](rows []*row, key func(*row) K) iter.Seq2[K, []*row] {
	var order []K
	parts := map[K][]*row{}
	for _, w := range rows {
		k := key(w)
		if parts[k] == nil {
			order = append(order, k)
		}
		parts[k] = append(parts[k], w)
	}
	return func(yield func(K, []*row) bool) {
		for _, k := range order {
			if !yield(k, parts[k]) {
				return
			}
		}
	}
}

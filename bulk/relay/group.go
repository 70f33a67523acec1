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

// groupName returns the id of the relay's group for a tenant and a type on a day; n counts such groups from 1. A tenant has no
// colon, so groups of two tenants have two names.
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

// groups remembers what the relay has found out about groups.
type groups struct {
	open   map[string]openGroup // groups that accept jobs
	closed map[string]bool      // sealed or ended
}

// openGroup is a group that accepts jobs.
type openGroup struct {
	created time.Time
	kind    string // type of jobs without one
}

// target is one group, and not another that gets its id after its deletion.
type target struct {
	group   string
	created time.Time
}

// again is the end of sent_to in a row that another batch than the one that wrote the rest may have sent.
const again = " again"

// mark returns sent_to of a row that was not sent yet.
func (t target) mark() string { return t.group + " " + t.created.UTC().Format(time.RFC3339Nano) }

// target returns where a row goes that has a mark. Without a time in it the group is any with this id.
func (w *row) target() (t target) {
	group, created, _ := strings.Cut(strings.TrimSuffix(w.sentTo.String, again), " ")
	t.group = group
	t.created, _ = time.Parse(time.RFC3339Nano, created) // zero if there is none
	return t
}

// maxKnown bounds the memory of a relay that runs for long: what is forgotten is asked again.
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
		id := groupName(w.tenant, w.kind, now, n)
		if r.groups.closed[id] {
			continue
		}
		to, err := r.ensure(ctx, id, w)
		if _, closed := errors.AsType[*closedError](err); closed {
			continue
		}
		return to, err
	}
	return target{}, &client.Problem{Status: http.StatusTooManyRequests, Code: "sealed", Detail: "the tenant has a thousand sealed groups of this type today: find out who seals them"}
}

// closedError is returned for a group that accepts no more jobs.
type closedError struct{ group string }

func (e *closedError) Error() string {
	return fmt.Sprintf("group %q is sealed: it accepts no more jobs", e.group)
}

// foreignError is returned for a group of another tenant.
type foreignError struct{ group, tenant string }

func (e *foreignError) Error() string {
	return fmt.Sprintf("group %q is not of tenant %q: use another group_id", e.group, e.tenant)
}

// ensure creates a group unless it exists. It must return before a row is marked with the group: of a marked row, an unknown group
// was deleted.
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
		g, err = r.o.Client.Group(ctx, id) // with settings that somebody else gave it
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

// by iterates over rows by a key, in the order in which the keys appear.
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

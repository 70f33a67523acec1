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
	types  map[string]string // of groups that accept jobs, the type of jobs without one
	closed map[string]bool   // sealed or ended
}

// maxKnown bounds the memory of a relay that runs for long: what is forgotten is asked again.
const maxKnown = 10_000

func newGroups() groups { return groups{map[string]string{}, map[string]bool{}} }

func (g *groups) forget() {
	if len(g.types)+len(g.closed) > maxKnown {
		*g = newGroups()
	}
}

func (g *groups) close(id string) {
	delete(g.types, id)
	g.closed[id] = true
}

// choose returns the group for a new row, and creates it if needed. An error is a refusal or an outage.
func (r *Relay) choose(ctx context.Context, w *row, now time.Time) (string, error) {
	if w.group.Valid {
		return w.group.String, r.ensure(ctx, w.group.String, w)
	}
	for n := 1; n <= 1000; n++ {
		id := groupName(w.tenant, w.kind, now, n)
		if r.groups.closed[id] {
			continue
		}
		err := r.ensure(ctx, id, w)
		if _, closed := errors.AsType[*closedError](err); closed {
			continue
		}
		return id, err
	}
	return "", &client.Problem{Status: http.StatusTooManyRequests, Code: "sealed", Detail: "the tenant has a thousand sealed groups of this type today: find out who seals them"}
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
func (r *Relay) ensure(ctx context.Context, id string, w *row) error {
	if r.groups.closed[id] {
		return &closedError{id}
	}
	if _, known := r.groups.types[id]; known {
		return nil
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
		return err
	case g.Tenant != w.tenant:
		return &foreignError{id, w.tenant}
	case g.Sealed || g.Status.Ended():
		r.groups.close(id)
		return &closedError{id}
	}
	r.groups.types[id] = g.Type
	return nil
}

// byGroup iterates over rows by the group to which they go, in the order in which the groups appear.
func byGroup(rows []*row) iter.Seq2[string, []*row] {
	var order []string
	parts := map[string][]*row{}
	for _, w := range rows {
		if parts[w.sentTo.String] == nil {
			order = append(order, w.sentTo.String)
		}
		parts[w.sentTo.String] = append(parts[w.sentTo.String], w)
	}
	return func(yield func(string, []*row) bool) {
		for _, id := range order {
			if !yield(id, parts[id]) {
				return
			}
		}
	}
}

package schedule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
)

// owned returns the ids of the schedules that ListOf returns.
func (d *desk) owned(tenants ...string) string {
	d.t.Helper()
	list, err := d.book.ListOf(d.t.Context(), tenants...)
	if err != nil {
		d.t.Fatal(err)
	}
	ids := make([]string, len(list))
	for i, s := range list {
		ids[i] = s.ID
	}
	return strings.Join(ids, " ")
}

func (d *desk) createOf(tenant, id string) {
	d.t.Helper()
	s := &Schedule{ID: id, Tenant: tenant, Cron: "@daily", Zone: "UTC", Jobs: []Job{{Payload: []byte("1")}}}
	s.Group.Type = "mail"
	if err := s.Check(); err != nil {
		d.t.Fatal(err)
	}
	if _, created, err := d.book.Create(d.t.Context(), s); err != nil || !created {
		d.t.Fatal(created, err)
	}
}

// The schedules of a tenant are listed without reading those of others.
func TestBook_ListsTenantWithoutReadingOthers(t *testing.T) {
	d := newDesk(t, "2026-03-01T00:00:00Z")
	for i := range 200 {
		d.createOf("neighbour", fmt.Sprint("n", i))
	}
	for _, id := range []string{"b", "a"} {
		d.createOf("acme", id)
	}
	d.createOf("acme2", "c")
	d.createOf("acm", "d")
	d.owned("acme") // compares the index
	client := redistest.Client(t).(*redis.Client)
	read := sent(t, client)
	if got := d.owned("acme"); got != "a b" {
		t.Errorf("schedules of acme: %s", got)
	}
	if n := read(); n > 4000 {
		t.Errorf("the list of two schedules beside 202 others had %d bytes", n)
	}
	if got := d.owned("acm", "acme", "acm", "nobody"); got != "a b d" {
		t.Errorf("schedules of two tenants: %s", got)
	}
	if err := d.book.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got := d.owned("acme"); got != "b" {
		t.Errorf("after the deletion: %s", got)
	}
}

// Creation and deletion keep the index of tenants.
func TestBook_KeepsIndexOfTenants(t *testing.T) {
	d := newDesk(t, "2026-03-01T00:00:00Z")
	d.createOf("acme", "a")
	d.createOf("beta", "b")
	if err := d.book.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	owners := redistest.Client(t).ZRange(t.Context(), d.prefix+":{bulk:0}:schedule_owners", 0, -1).Val()
	if strings.Join(owners, " ") != "beta/b" {
		t.Errorf("the index has %q", owners)
	}
}

// sent returns a function that returns how many bytes the server has sent since.
func sent(t *testing.T, client *redis.Client) func() int {
	count := func() (n int) {
		text, err := client.Info(t.Context(), "stats").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(text, "total_net_output_bytes:")
		if _, err := fmt.Sscan(after, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	info := count() - before // of one call
	before = count()
	return func() int { return count() - before - info }
}

// What processes of an earlier version create and delete, which have no index of tenants, is listed as it is.
func TestBook_CompletesIndexOfTenants(t *testing.T) {
	d := newDesk(t, "2026-03-01T00:00:00Z")
	for i := range 120 {
		d.createOf("acme", fmt.Sprintf("a%03d", i))
	}
	d.createOf("beta", "b")
	client := redistest.Client(t)
	schedules, owners := d.prefix+":{bulk:0}:schedules", d.prefix+":{bulk:0}:schedule_owners"
	whole := d.owned("acme")
	if err := client.Del(t.Context(), owners).Err(); err != nil {
		t.Fatal(err)
	}
	if got := d.owned("acme"); got != whole || len(strings.Fields(got)) != 120 {
		t.Errorf("without an index: %s", got)
	}
	// The numbers are the same, but not the schedules.
	text := client.HGet(t.Context(), schedules, "b").Val()
	client.HDel(t.Context(), schedules, "a000")
	client.HSet(t.Context(), schedules, "b2", strings.Replace(text, `"b"`, `"b2"`, 1))
	d.book.indexed.Store(0) // a minute later, or another process
	if got := d.owned("beta"); got != "b b2" {
		t.Errorf("beside a deleted schedule of another tenant: %s", got)
	}
	// A schedule was deleted, and one of another tenant has its id.
	client.ZAdd(t.Context(), owners, redis.Z{Member: "acme/b"}, redis.Z{Member: "zeta/b2"})
	if got := d.owned("beta"); got != "b b2" {
		t.Errorf("with another tenant's former schedules: %s", got)
	}
	if n, want := client.ZCard(t.Context(), owners).Val(), client.HLen(t.Context(), schedules).Val(); n != want {
		t.Errorf("the index has %d schedules of %d", n, want)
	}
}

package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
)

func TestClient_RunsGroupToItsResult(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.work(t)
	c := newClient(t, s.URL, Options{})
	g := create(t, c, GroupSpec{ID: "spring", Priority: High, Weight: 2.5, Rate: 5000, Concurrency: 50, FailureTolerance: "50%",
		Aggregate: json.RawMessage(`"sum:n"`), Start: Sealed})
	if g.Status != Created || g.Priority != High || g.Weight != 2.5 || g.RateLimit != 5000 || g.Concurrency != 50 || g.FailureTolerance != "50%" || g.Start != Sealed || g.CreatedAt.IsZero() {
		t.Errorf("created %+v", g)
	}
	var rejected []Rejection
	u, err := c.AddLines(t.Context(), g.ID, strings.NewReader(`{"id":"a","payload":{"n":1}}
{"id":"b","payload":{"n":20}}
{"id":"b","payload":{"n":20}}

{"id":"c"}
{"id":"d","type":"refuse","payload":null}
{"id":"e","type":"nobody","payload":[1]}`), Upload{OnRejected: func(r Rejection) { rejected = append(rejected, r) }})
	if err != nil || u.Lines != 7 || u.Accepted != 4 || u.Duplicates != 1 || u.Rejected != 1 {
		t.Fatalf("%+v, %v", u, err)
	}
	if len(rejected) != 1 || rejected[0].Line != 5 || !strings.Contains(rejected[0].Reason, "payload") || len(u.Rejections) != 1 {
		t.Errorf("rejected %+v, kept %+v", rejected, u.Rejections)
	}
	if g, err = c.Seal(t.Context(), g.ID); err != nil || !g.Sealed || g.Total != 4 {
		t.Fatalf("sealed %+v, %v", g, err)
	}
	if g = end(t, c, g.ID); g.Status != Completed || g.Succeeded != 2 || g.Failed != 1 || g.Dead != 1 || g.Done() != 4 || g.Progress != 1 || g.FinishedAt.IsZero() {
		t.Errorf("ended %+v", g)
	}
	got := map[string]string{}
	for o, err := range c.Results(t.Context(), g.ID) {
		if err != nil {
			t.Fatal(err)
		}
		got[o.ID] = fmt.Sprintf("%s %d %s %s", o.Status, o.Attempts, o.Result, o.Code)
	}
	for id, want := range map[string]string{"a": `succeeded 1 {"n":1} `, "b": `succeeded 1 {"n":20} `, "d": "failed 1  refused"} {
		if got[id] != want {
			t.Errorf("job %s: %q; want %q", id, got[id], want)
		}
	}
	if len(got) != 4 || !strings.HasPrefix(got["e"], "dead") {
		t.Errorf("results %q", got)
	}
	result, err := c.Result(t.Context(), g.ID)
	if err != nil || !strings.Contains(string(result), "21") {
		t.Errorf("result %s, %v", result, err)
	}
	for o, err := range c.Dead(t.Context(), g.ID) {
		if err != nil || o.ID != "e" || o.Type != "nobody" || string(o.Payload) != "[1]" {
			t.Errorf("dead %+v, %v", o, err)
		}
	}
	again, err := c.Redrive(t.Context(), g.ID, 10)
	if err != nil || again.RedriveOf != g.ID || again.RateLimit != 10 {
		t.Fatalf("redrive %+v, %v", again, err)
	}
	if again = end(t, c, again.ID); again.Dead != 1 {
		t.Errorf("the redrive ended %+v", again)
	}
}

// The response to a redrive is lost; the second request finds the group that the first created.
func TestRedrive_ThroughUnreliableConnection(t *testing.T) {
	t.Parallel()
	var made atomic.Int64
	s := serve(t, lost("/redrive", &made))
	s.work(t)
	c := newClient(t, s.URL, Options{})
	g := end(t, c, submit(t, c, GroupSpec{Type: "nobody"}, lines(3)).ID)
	create(t, c, GroupSpec{})
	again, err := c.Redrive(t.Context(), g.ID, 0)
	if err != nil || again.RedriveOf != g.ID || again.Total != 3 || made.Load() != 2 {
		t.Errorf("%+v, %v, asked %d times", again, err, made.Load())
	}
	_, err = c.Redrive(t.Context(), g.ID, 0)
	if p, ok := errors.AsType[*Problem](err); !ok || p.Code != "wrong_state" {
		t.Errorf("nothing left to redrive: %v", err)
	}
}

func TestGroups_PageByPage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := newClient(t, s.URL, Options{})
	want := map[string]bool{}
	for range 130 { // more than a page
		want[create(t, c, GroupSpec{}).ID] = true
	}
	create(t, c, GroupSpec{Tenant: "other"})
	if _, err := c.Cancel(t.Context(), create(t, c, GroupSpec{}).ID); err != nil {
		t.Fatal(err)
	}
	for g, err := range c.Groups(t.Context(), Filter{Tenant: "acme", Status: Created}) {
		if err != nil || !want[g.ID] {
			t.Fatalf("%+v, %v", g, err)
		}
		delete(want, g.ID)
	}
	if len(want) > 0 {
		t.Errorf("%d groups are not listed", len(want))
	}
	for range c.Groups(t.Context(), Filter{}) {
		return // may stop early
	}
	t.Error("nothing is listed")
}

func TestClient_ChangesGroup(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := newClient(t, s.URL, Options{})
	g := submit(t, c, GroupSpec{}, lines(10))
	weight, low := 4.0, Low
	for _, row := range []struct {
		what string
		do   func() (*Group, error)
		good func(*Group) bool
	}{
		{"release", func() (*Group, error) { return c.Release(t.Context(), g.ID) }, func(g *Group) bool { return !g.Gated }},
		{"pause", func() (*Group, error) { return c.Pause(t.Context(), g.ID) }, func(g *Group) bool { return g.Paused }},
		{"resume", func() (*Group, error) { return c.Resume(t.Context(), g.ID) }, func(g *Group) bool { return !g.Paused }},
		{"patch", func() (*Group, error) {
			return c.Patch(t.Context(), g.ID, Patch{Weight: &weight, Priority: &low})
		}, func(g *Group) bool { return g.Weight == 4 && g.Priority == Low && g.RateLimit == 0 }},
		{"cancel", func() (*Group, error) { return c.Cancel(t.Context(), g.ID) }, func(g *Group) bool { return g.Cancelled == 10 }},
		{"cancel again", func() (*Group, error) { return c.Cancel(t.Context(), g.ID) }, func(g *Group) bool { return g.Cancelled == 10 }},
	} {
		if g, err := row.do(); err != nil || !row.good(g) {
			t.Errorf("%s: %+v, %v", row.what, g, err)
		}
	}
}

func TestClient_ReturnsProblems(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := newClient(t, s.URL, Options{Patience: -1})
	sealed := submit(t, c, GroupSpec{}, lines(1))
	for _, row := range []struct {
		what string
		do   func() error
		want Problem
	}{
		{"no such group", func() error { _, err := c.Group(t.Context(), "nobody"); return err }, Problem{Status: 404, Code: "not_found"}},
		{"more jobs after the seal", func() error {
			_, err := c.AddLines(t.Context(), sealed.ID, strings.NewReader(lines(2)), Upload{})
			return err
		}, Problem{Status: 409, Code: "sealed"}},
		{"the id of another group", func() error {
			_, err := c.CreateGroup(t.Context(), GroupSpec{ID: sealed.ID, Tenant: "other", Type: "echo"})
			return err
		}, Problem{Status: 409, Code: "exists"}},
		{"no tenant", func() error { _, err := c.CreateGroup(t.Context(), GroupSpec{Type: "echo"}); return err }, Problem{Status: 422, Code: "invalid"}},
		{"no result yet", func() error { _, err := c.Result(t.Context(), sealed.ID); return err }, Problem{Status: 409, Code: "wrong_state"}},
		{"results of no group", func() error {
			for _, err := range c.Results(t.Context(), "nobody") {
				return err
			}
			return nil
		}, Problem{Status: 404, Code: "not_found"}},
		{"watching no group", func() error {
			for _, err := range c.Watch(t.Context(), "nobody") {
				return err
			}
			return nil
		}, Problem{Status: 404, Code: "not_found"}},
	} {
		p, ok := errors.AsType[*Problem](row.do())
		if !ok || p.Status != row.want.Status || p.Code != row.want.Code || p.Detail == "" || Passing(p) {
			t.Errorf("%s: %+v; want %d %s", row.what, p, row.want.Status, row.want.Code)
		}
	}
	if _, err := c.AddLines(t.Context(), sealed.ID, strings.NewReader(""), Upload{ID: "a b"}); err == nil || !strings.Contains(err.Error(), `"a b"`) {
		t.Errorf("an upload's ID with a blank: %v", err)
	}
}

func TestClient_ChangesLimits(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := newClient(t, s.URL, Options{})
	submit(t, c, GroupSpec{}, lines(3))
	rate, weight := 250.0, 3.0
	if l, err := c.SetLimits(t.Context(), &rate, nil); err != nil || l.Global != 250 || !l.Live {
		t.Errorf("limits %+v, %v", l, err)
	}
	if l, err := c.SetLimits(t.Context(), nil, nil); err != nil || l.Live {
		t.Errorf("limits as configured %+v, %v", l, err)
	}
	if l, err := c.Limits(t.Context()); err != nil || l.Global != 1e6 {
		t.Errorf("limits %+v, %v", l, err)
	}
	most := int64(4)
	if l, err := c.SetProcessor(t.Context(), "mail", ProcessorPatch{Rate: &rate, Concurrency: &most}); err != nil || l.Processors["mail"] != (ProcessorLimits{Rate: 250, Concurrency: 4, Live: true}) {
		t.Errorf("a processor's limits %+v, %v", l, err)
	}
	if l, err := c.SetProcessor(t.Context(), "mail", ProcessorPatch{Concurrency: &most, Reset: true}); err != nil || l.Processors["mail"] != (ProcessorLimits{Concurrency: 4, Live: true}) {
		t.Errorf("a processor's rate as configured %+v, %v", l, err)
	}
	if l, err := c.SetProcessor(t.Context(), "mail", ProcessorPatch{Reset: true}); err != nil || len(l.Processors) != 0 {
		t.Errorf("a processor's limits as configured %+v, %v", l, err)
	}
	if n, err := c.SetTenant(t.Context(), "acme", TenantPatch{Weight: &weight, Rate: &rate}); err != nil || n.Weight != 3 || n.Rate != 250 {
		t.Errorf("tenant %+v, %v", n, err)
	}
	if n, err := c.Tenant(t.Context(), "acme"); err != nil || n.Weight != 3 || n.Groups != 1 {
		t.Errorf("tenant %+v, %v", n, err)
	}
	congested, err := c.Congestion(t.Context())
	if err != nil || len(congested) != 1 || congested[0].Tenant != "acme" || congested[0].Pending != 3 || congested[0].Level != "none" {
		t.Errorf("congestion %+v, %v", congested, err)
	}
	if err := s.store.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if past, err := c.History(t.Context(), "acme", 5); err != nil || len(past) != 1 || past[0].Pending != 3 {
		t.Errorf("history %+v, %v", past, err)
	}
}

// Every field that the server sends has a field in the client's types.
func TestClient_ReadsEveryField(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.work(t)
	c := newClient(t, s.URL, Options{})
	g := submit(t, c, GroupSpec{CallbackURL: "https://example.com/done", Rate: 1e6}, `{"id":"a","payload":1}
{"id":"b","type":"refuse","payload":1}
{"id":"c","type":"nobody","payload":1,"cost":2}
{"id":"d","payload":1,"run_at":"2100-01-01T00:00:00Z"}`)
	if _, err := c.Cancel(t.Context(), g.ID); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if g.Dead > 0 {
			if _, err := c.Redrive(t.Context(), g.ID, 0); err != nil {
				t.Fatal(err)
			}
		}
		g = submit(t, c, GroupSpec{}, `{"id":"a","payload":1}
{"id":"b","type":"refuse","payload":1}
{"id":"c","type":"nobody","payload":1,"cost":2}`)
		g = end(t, c, g.ID)
	}
	submit(t, c, GroupSpec{Start: Sealed}, `{"payload":1,"run_at":"2100-01-01T00:00:00Z"}`)
	if err := s.store.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	var summary json.RawMessage
	for _, row := range []struct {
		call call
		into any
	}{
		{get("v1", "groups", g.ID), new(Group)},
		{get("v1", "groups"), &struct {
			Groups []Group
			Next   string
		}{}},
		{get("v1", "groups", g.ID, "results"), new(Outcome)},
		{Which{Statuses: []string{"dead", "succeeded"}, Cursor: new("")}.call(g.ID), new(Outcome)},
		{deadCall(g.ID), new(Outcome)},
		{get("v1", "congestion"), &struct {
			Summary *json.RawMessage
			Tenants []Congestion
		}{Summary: &summary}},
		{get("v1", "congestion", "acme", "history"), &struct {
			Tenant  string
			History []Congestion
		}{}},
		{get("v1", "breakers"), &struct{ Breakers []Breaker }{}},
		{get("v1", "workers"), new(Workers)},
		{get("v1", "limits"), new(Limits)},
		{get("v1", "tenants", "acme"), new(Tenant)},
	} {
		body, err := c.try(t.Context(), row.call)
		if err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(body)
		d.DisallowUnknownFields()
		n := 0
		for ; err == nil; n++ {
			err = d.Decode(row.into)
		}
		if !errors.Is(err, io.EOF) || n < 2 {
			t.Errorf("%s, answer %d: %v", c.url(row.call), n, err)
		}
		_ = body.Close()
	}
}

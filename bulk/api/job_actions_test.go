package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

func TestCancelJob_WhereverItIs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail","failure_tolerance":"100%"}`)
	at := "/v1/groups/" + id + "/jobs/"
	var more strings.Builder
	more.WriteString(lines(350)) // several pages of the line
	fmt.Fprintf(&more, `{"id":"later","run_at":%q,"payload":1}`+"\n", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	want(t, b.ask("POST", "/v1/groups/"+id+"/jobs", more.String()), 200)
	pulled, err := b.store.Pull(t.Context(), 3)
	if err != nil || len(pulled.Jobs) != 3 {
		t.Fatal(pulled, err)
	}
	running, ended := pulled.Jobs[0], pulled.Jobs[1]
	if _, err := b.store.Ack(t.Context(), []store.Ack{{Key: ended.Key, Fence: ended.Fence, Verdict: store.Done}}); err != nil {
		t.Fatal(err)
	}
	for _, job := range []string{"j3", "j99", "j100", "j349", "later"} {
		w := b.ask("POST", at+job+"/cancel", "")
		want(t, w, 200)
		if got := pick(decoded(t, w), "id", "status", "type"); got != `id="`+job+`" status="cancelled" type="mail"` {
			t.Error(got)
		}
	}
	want(t, b.ask("POST", at+"j3/cancel", "{}"), 200) // again
	w := b.ask("POST", at+running.ID+"/cancel", "")
	want(t, w, 202)
	if got := pick(decoded(t, w), "status", "cancelling"); got != `status="running" cancelling=true` {
		t.Error(got)
	}
	states, err := b.store.Renew(t.Context(), []store.Lease{{Key: running.Key, Fence: running.Fence}, {Key: pulled.Jobs[2].Key, Fence: pulled.Jobs[2].Fence}})
	if err != nil || states[0] != store.LeaseCalled || states[1] != store.LeaseHeld {
		t.Fatal(states, err)
	}
	if acked, err := b.store.Ack(t.Context(), []store.Ack{{Key: running.Key, Fence: running.Fence, Verdict: store.Returned}}); err != nil || acked[0] != store.AckCancelled {
		t.Fatal(acked, err)
	}
	wantCode(t, b.ask("POST", at+ended.ID+"/cancel", ""), 409, "wrong_state", "has succeeded")
	wantCode(t, b.ask("POST", at+"none/cancel", ""), 404, "not_found", "none")
	wantCode(t, b.ask("POST", at+"j4/cancel", `{"now":true}`), 422, "invalid", "now")
	wantCode(t, b.ask("POST", "/v1/groups/none/jobs/j4/cancel", ""), 404, "not_found")
	if _, err := b.store.Ack(t.Context(), []store.Ack{{Key: pulled.Jobs[2].Key, Fence: pulled.Jobs[2].Fence, Verdict: store.Done}}); err != nil {
		t.Fatal(err)
	}
	want(t, b.ask("POST", "/v1/groups/"+id+"/seal", ""), 200)
	if n := b.run(done); n != 343 {
		t.Errorf("%d jobs ran, want the 343 that are left", n)
	}
	if got := pick(b.group(id), "status", "succeeded", "cancelled", "pending"); got != `status="COMPLETED" succeeded=345 cancelled=6 pending=0` {
		t.Error(got)
	}
	b.clean()
}

func (b *bench) clean() {
	b.t.Helper()
	if wrong, err := b.store.Audit(b.t.Context()); err != nil || len(wrong) > 0 {
		b.t.Errorf("audit: %v, %v", wrong, err)
	}
}

// Cancelling the last job of a group ends the group.
func TestCancelJob_EndsItsGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail","results":"none"}`)
	want(t, b.ask("POST", "/v1/groups/"+id+"/jobs", lines(1)), 200)
	want(t, b.ask("POST", "/v1/groups/"+id+"/seal", ""), 200)
	w := b.ask("POST", "/v1/groups/"+id+"/jobs/j0/cancel", "", "Authorization: Bearer "+acmeToken)
	want(t, w, 200)
	if got := pick(decoded(t, w), "id", "status", "type"); got != `id="j0" status="cancelled" type="mail"` { // though that is not kept
		t.Error(got)
	}
	if got := pick(b.group(id), "status", "cancelled"); got != `status="COMPLETED" cancelled=1` {
		t.Error(got)
	}
	b.clean()
}

// Cancelling the last job of a page of the group's queue deletes the page, wherever the page is. In a cancelled group, a cancel of a
// running job returns that the job runs.
func TestCancelJob_LeavesNoPage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	at := "/v1/groups/" + id
	want(t, b.ask("POST", at+"/jobs", lines(250)), 200)
	want(t, b.ask("POST", at+"/seal", ""), 200)
	for i := 100; i < 250; i++ { // a page in the middle, and the last one
		want(t, b.ask("POST", fmt.Sprintf("%s/jobs/j%d/cancel", at, i), ""), 200)
	}
	b.clean()
	if n := b.run(done); n != 100 {
		t.Errorf("%d jobs ran, want 100", n)
	}
	b.clean()

	id = b.create(`{"tenant":"acme","type":"mail"}`)
	at = "/v1/groups/" + id
	want(t, b.ask("POST", at+"/jobs", lines(2)), 200)
	if pulled, err := b.store.Pull(t.Context(), 1); err != nil || len(pulled.Jobs) != 1 {
		t.Fatal(pulled, err)
	}
	want(t, b.ask("POST", at+"/cancel", ""), 200)
	want(t, b.ask("POST", at+"/jobs/j0/cancel", ""), 202)
	want(t, b.ask("POST", at+"/jobs/j1/cancel", ""), 200)
}

func TestRetryJob_NowOrInARedrive(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	at := "/v1/groups/" + id + "/jobs/"
	want(t, b.ask("POST", "/v1/groups/"+id+"/jobs", lines(3)), 200)
	pulled, err := b.store.Pull(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.Ack(t.Context(), []store.Ack{
		{Key: pulled.Jobs[0].Key, Fence: pulled.Jobs[0].Fence, Verdict: store.Retry, Retries: 5, After: time.Hour},
		{Key: pulled.Jobs[1].Key, Fence: pulled.Jobs[1].Fence, Verdict: store.Rejected, Code: "http_400"}}); err != nil {
		t.Fatal(err)
	}
	w := b.ask("POST", at+"j0/retry", "")
	want(t, w, 200)
	if got := pick(decoded(t, w), "status", "attempts", "group"); got != `status="pending" attempts=1 group="`+id+`"` {
		t.Error(got)
	}
	wantCode(t, b.ask("POST", at+"j0/retry", ""), 409, "wrong_state", "pending")
	w = b.ask("POST", at+"j1/retry", "")
	want(t, w, 201)
	if got := pick(decoded(t, w), "id", "status", "group"); got != `id="j1" status="pending" group="`+id+`-r1"` || w.Header().Get("Location") != "/v1/groups/"+id+"-r1/jobs/j1" {
		t.Error(got, w.Header())
	}
	wantCode(t, b.ask("POST", at+"j1/retry", ""), 409, "wrong_state", "redrive")
	wantCode(t, b.ask("POST", at+"none/retry", ""), 404, "not_found")
	want(t, b.ask("POST", "/v1/groups/"+id+"/seal", ""), 200)
	b.run(done)
	wantCode(t, b.ask("POST", at+"j0/retry", ""), 409, "wrong_state", "has succeeded")
	if got := pick(b.group(id+"-r1"), "status", "succeeded", "total"); got != `status="COMPLETED" succeeded=1 total=1` {
		t.Error(got)
	}
	b.clean()
}

func TestDeleteGroup_LeavesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail","failure_tolerance":"100%"}`)
	at := "/v1/groups/" + id
	want(t, b.ask("POST", at+"/jobs", lines(1200)), 200)
	wantCode(t, b.ask("DELETE", at, ""), 409, "wrong_state", "CREATED")
	want(t, b.ask("POST", at+"/seal", ""), 200)
	i := 0
	b.run(func(l store.Leased) store.Ack {
		i++
		return []store.Ack{{Verdict: store.Done}, {Verdict: store.Rejected, Code: "http_400"}, {Verdict: store.Buried, Code: "timeout"}}[i%3]
	})
	w := b.ask("DELETE", at, "", "Authorization: Bearer "+acmeToken)
	want(t, w, 204)
	for _, path := range []string{at, at + "/jobs/j0", at + "/results"} {
		wantCode(t, b.ask("GET", path, ""), 404, "not_found")
	}
	wantCode(t, b.ask("DELETE", at, ""), 404, "not_found")
	b.clean()
	// The id is free again.
	want(t, b.ask("POST", "/v1/groups", `{"id":"`+id+`","tenant":"acme","type":"fax"}`), 201)
	called := b.create(`{"tenant":"acme","type":"mail","callback_url":"https://example.com/done"}`)
	want(t, b.ask("POST", "/v1/groups/"+called+"/seal", ""), 200)
	wantCode(t, b.ask("DELETE", "/v1/groups/"+called, ""), 409, "wrong_state", "callback")
	cancelled := b.create(`{"tenant":"acme","type":"mail"}`)
	want(t, b.ask("POST", "/v1/groups/"+cancelled+"/jobs", lines(2)), 200)
	want(t, b.ask("POST", "/v1/groups/"+cancelled+"/cancel", ""), 200)
	wantCode(t, b.ask("DELETE", "/v1/groups/"+cancelled, ""), 409, "wrong_state", "recorded")
	if _, err := b.store.Tend(t.Context(), cancelled); err != nil {
		t.Fatal(err)
	}
	want(t, b.ask("DELETE", "/v1/groups/"+cancelled, ""), 204)
	b.clean()
}

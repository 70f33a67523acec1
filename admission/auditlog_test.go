package admission

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/anteroom/anteroom/admission/audit"
	"github.com/anteroom/anteroom/internal/redistest"
)

// Entries of many gateways form one chain, whatever the length of their texts: the script's hash is SHA-256.
func TestAuditLog_IsAChain(t *testing.T) {
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	gateways := make([]*Room, 4)
	for i := range gateways {
		gateways[i] = testRoom(t, client, prefix, newTestClock(), basePolicy)
	}
	key := gateways[0].keys[keyAudit]
	old := "10:17000000003:ann4:sale5:pause6:paused-1:1" // of an earlier version
	if err := client.LPush(ctx5(t), key, old).Err(); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i, r := range gateways {
		all.Go(func() {
			for n := range 40 {
				message := strings.Repeat("ä", 4*n+i) // every length modulo the block of 64 bytes
				if err := r.Patch(ctx5(t), "ann", Live{Message: &message}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	entries, err := gateways[0].AuditLog(ctx5(t))
	if err != nil {
		t.Fatal(err)
	}
	c, err := audit.VerifyKept(entries)
	if err != nil || c.Entries != 160 || c.Unchained != 1 || c.Head.Seq != 160 || entries[0].Who != "ann" {
		t.Fatalf("%+v, %v", c, err)
	}
	// The store's own hand on an entry is found.
	raw, err := client.LIndex(ctx5(t), key, 80).Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.LSet(ctx5(t), key, 80, strings.Replace(raw, "3:ann", "3:bob", 1)).Err(); err != nil {
		t.Fatal(err)
	}
	if entries, err = gateways[0].AuditLog(ctx5(t)); err != nil {
		t.Fatal(err)
	}
	if c, err := audit.VerifyKept(entries); err == nil {
		t.Errorf("a changed entry is not found: %+v", c)
	}
}

// At the bound the oldest entries go, and the chain verifies from its anchor.
func TestAuditLog_IsTrimmed(t *testing.T) {
	client := redistest.Client(t)
	r := testRoom(t, client, redistest.Prefix(t), newTestClock(), basePolicy)
	key := r.keys[keyAudit]
	old := make([]any, audit.Kept-1)
	for i := range old {
		old[i] = "10:17000000003:ann4:sale5:pause"
	}
	if err := client.RPush(ctx5(t), key, old...).Err(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := r.Pause(ctx5(t), "ann"); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := r.AuditLog(ctx5(t))
	if err != nil || len(entries) != audit.Kept {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	if c, err := audit.VerifyKept(entries); err != nil || c.Entries != 3 || c.Unchained != audit.Kept-3 {
		t.Errorf("%+v, %v", c, err)
	}
}

// After a FLUSHALL the next log has what gateways had seen of the lost one, once.
func TestAuditWatch_RecordsALoss(t *testing.T) {
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	a, b := testRoom(t, client, prefix, newTestClock(), basePolicy), testRoom(t, client, prefix, newTestClock(), basePolicy)
	watches := []*AuditWatch{NewAuditWatch(a.c, slog.New(slog.DiscardHandler)), NewAuditWatch(b.c, slog.New(slog.DiscardHandler))}
	look := func() {
		for _, w := range watches {
			if err := w.Look(ctx5(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	verified := func() (audit.Chain, []Entry) {
		entries, err := a.AuditLog(ctx5(t))
		if err != nil {
			t.Fatal(err)
		}
		c, err := audit.VerifyKept(entries)
		if err != nil {
			t.Fatal(err)
		}
		return c, entries
	}
	for range 3 {
		if err := a.Pause(ctx5(t), "ann"); err != nil {
			t.Fatal(err)
		}
		look()
	}
	before, _ := verified()
	if len(before.Lost) != 0 || before.Head.Seq != 3 {
		t.Fatalf("before the loss: %+v", before)
	}
	if err := client.Del(ctx5(t), a.keys[keyAudit]).Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.Pause(ctx5(t), "bob"); err != nil { // before a gateway looks
		t.Fatal(err)
	}
	look()
	look()
	c, entries := verified()
	if len(c.Lost) != 1 || c.Head.Seq != 2 || entries[1].Action != "chain_lost" || *entries[1].Changes[0].Before != "3" || *entries[1].Changes[1].Before != before.Head.Hash {
		t.Errorf("after the loss: %+v, %+v", c, entries)
	}
	// A rewritten end, as long as before, is found as well.
	if err := client.LSet(ctx5(t), a.keys[keyAudit], 0, "10:17000000003:eve4:sale5:pause").Err(); err != nil {
		t.Fatal(err)
	}
	look()
	newest, err := a.c.Audit(ctx5(t), 1, nil)
	if err != nil || newest[0].Action != "chain_lost" {
		t.Errorf("after the change: %+v, %v", newest, err)
	}
	// So is a new log that is longer than the lost one.
	known := newest[0].Seq
	if err := client.Del(ctx5(t), a.keys[keyAudit]).Err(); err != nil {
		t.Fatal(err)
	}
	for range known + 1 {
		if err := a.Pause(ctx5(t), "eve"); err != nil {
			t.Fatal(err)
		}
	}
	look()
	if c, entries := verified(); len(c.Lost) != 1 || c.Head.Seq != known+2 || *entries[known+1].Changes[1].Before != newest[0].Hash {
		t.Errorf("after a longer log: %+v, %+v", c, entries)
	}
}

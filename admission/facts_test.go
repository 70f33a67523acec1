package admission

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/internal/redistest"
)

func publish(t testing.TB, r *Room, before, after Facts) bool {
	t.Helper()
	done, err := r.PublishFacts(context.Background(), "shop", "facts", before, after)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// Facts reach every gateway, change only where they are as the caller read them, and outlive a store that lost its data.
func TestFacts_ReachGatewaysAndSurviveLostStore(t *testing.T) {
	server := redistest.Server(t)
	client := server.Client()
	c := newTestClock()
	r := testRoom(t, client, "wr", c, basePolicy)
	other := testRoom(t, client, "wr", c, basePolicy)
	first, second := Facts{Text: `{"v": 1}`, Hash: "h1"}, Facts{Text: `{"v": 2}`, Hash: "h2", SoldOut: true}
	if !publish(t, r, Facts{}, first) {
		t.Fatal("the first facts are refused")
	}
	if publish(t, other, Facts{}, second) {
		t.Fatal("facts were replaced by a caller who did not know them")
	}
	if !publish(t, other, first, second) {
		t.Fatal("facts are refused although their former text is right")
	}
	c.pass(time.Second)
	mustTick(t, r)
	if got := r.Snapshot().Facts; got != second {
		t.Fatalf("a gateway has %+v, want %+v", got, second)
	}
	must(t, client.FlushAll(ctx5(t)).Err())
	c.pass(time.Second)
	mustTick(t, r)
	if text, err := r.ReadFacts(ctx5(t)); err != nil || text != second.Text {
		t.Fatalf("the emptied store has %q, %v", text, err)
	}
	late := testRoom(t, client, "wr", c, basePolicy)
	mustTick(t, late)
	if got := late.Snapshot().Facts; got != second {
		t.Fatalf("a new gateway has %+v after the loss, want %+v", got, second)
	}
	if !publish(t, r, second, Facts{}) || r.Snapshot().Facts != (Facts{}) {
		t.Fatalf("removed facts are still %+v", r.Snapshot().Facts)
	}
}

// The audit log has the hash of the facts, not their text.
func TestFacts_AuditLogHasHashes(t *testing.T) {
	c := newTestClock()
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, basePolicy)
	first := Facts{Text: `{"long": "text"}`, Hash: "h1"}
	publish(t, r, Facts{}, first)
	publish(t, r, first, Facts{Text: `{}`, Hash: "h2", SoldOut: true})
	entries, err := r.c.Audit(ctx5(t), 10, nil)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
	var fields []string
	for _, change := range entries[0].Changes {
		before, after := "-", "-"
		if change.Before != nil {
			before = *change.Before
		}
		if change.After != nil {
			after = *change.After
		}
		fields = append(fields, change.Field+" "+before+" "+after)
	}
	if want := []string{"facts_hash h1 h2", "sold_out - 1"}; entries[0].Action != "facts" || entries[0].Who != "shop" || !slices.Equal(fields, want) {
		t.Errorf("%+v: %q, want %q", entries[0], fields, want)
	}
}

// While everything is sold out nobody is admitted and nobody gets a place. Places and their order stay, sessions go on, and admission
// continues in that order at the rate.
func TestFacts_SoldOutClosesAndKeepsOrder(t *testing.T) {
	client := redistest.Client(t)
	histories := 0
	rapid.Check(t, func(rt *rapid.T) {
		if histories++; histories > 25 { // each has dozens of steps, and each step checks the whole queue
			return
		}
		c := newTestClock()
		p := basePolicy
		p.Rate, p.Burst, p.SoldOutCloses = 1000, 1000, true
		r := testRoom(t, client, redistest.Prefix(t), c, p)
		soldOut, closes := false, true
		facts := Facts{}
		var queue, admitted []Ticket // of the model, in order of arrival
		sessions := 0
		// collect moves the tickets that were admitted since its last call from the queue.
		collect := func(rt *rapid.T) {
			before := len(queue)
			for len(queue) > 0 && mustCheck(t, r, queue[0]).State == Admitted {
				admitted, queue = append(admitted, queue[0]), queue[1:]
			}
			if soldOut && closes && len(queue) != before {
				rt.Fatalf("%d were admitted while everything is sold out", before-len(queue))
			}
			for i, ticket := range queue {
				if s := mustCheck(t, r, ticket); s.State != Waiting || s.Ticket.Order != ticket.Order {
					rt.Fatalf("ticket %d of the queue: %+v", i, s)
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"join": func(rt *rapid.T) {
				c.pass(time.Millisecond)
				s, refusal, err := r.Join(ctx5(t), Arrival{ID: testID(), Client: testClient(1)})
				if err != nil {
					rt.Fatal(err)
				}
				switch shut := soldOut && closes; {
				case shut && refusal != Closed:
					rt.Fatalf("a join in a room that is sold out: %v, refusal %v", s.State, refusal)
				case !shut && refusal != Granted:
					rt.Fatalf("a join is refused: %v", refusal)
				case refusal == Granted && s.State == Active:
					if len(queue) > 0 {
						rt.Fatalf("a newcomer passes %d tickets", len(queue))
					}
					sessions++
				case refusal == Granted:
					queue = append(queue, s.Ticket)
				}
			},
			"state": func(rt *rapid.T) {
				next := Facts{SoldOut: rapid.Bool().Draw(rt, "sold out"), Text: rapid.StringMatching(`\{[a-z]{1,3}\}`).Draw(rt, "text")}
				next.Hash = "h" + next.Text
				if done, err := r.PublishFacts(ctx5(t), "shop", "facts", facts, next); err != nil || !done {
					rt.Fatalf("%v, %v", done, err)
				}
				facts, soldOut = next, next.SoldOut
				collect(rt)
			},
			"policy": func(rt *rapid.T) {
				word := rapid.SampledFrom([]string{"keep", "close"}).Draw(rt, "on_sold_out")
				if err := r.Patch(ctx5(t), "op", Live{OnSoldOut: &word}); err != nil {
					rt.Fatal(err)
				}
				closes = word == "close"
				collect(rt)
			},
			"tick": func(rt *rapid.T) {
				for range rapid.IntRange(1, 3).Draw(rt, "seconds") {
					c.pass(time.Second)
					mustTick(t, r)
				}
				if got := r.Snapshot().Policy.SoldOut; got != (soldOut && closes) {
					rt.Fatalf("sold out: %v, with facts %v and close %v", got, soldOut, closes)
				}
				collect(rt)
			},
			"claim": func(rt *rapid.T) {
				if len(admitted) == 0 {
					rt.Skip("nobody is admitted")
				}
				admitted[0].Client = testClient(1)
				if s, err := r.Claim(ctx5(t), admitted[0]); err != nil || s.State != Active {
					rt.Fatalf("%+v, %v", s, err)
				}
				admitted, sessions = admitted[1:], sessions+1
			},
			"": func(rt *rapid.T) {
				if got := int(r.Snapshot().Active); got > sessions {
					rt.Fatalf("%d sessions, want at most %d", got, sessions)
				}
			},
		})
	})
}

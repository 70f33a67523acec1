package admission_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/redistest"
)

// exampleTest replaces the *testing.T that examples do not have.
type exampleTest struct {
	testing.TB
	cleanup func()
}

func (*exampleTest) Helper()            {}
func (e *exampleTest) Cleanup(f func()) { e.cleanup = f }
func (*exampleTest) Fatal(args ...any)  { panic(fmt.Sprint(args...)) }

func ExampleRoom() {
	t := &exampleTest{}
	client := redistest.Client(t) // redis.NewClient(…)
	defer t.cleanup()
	ctx := context.Background()

	core, err := admission.New(admission.Options{Client: client, Prefix: redistest.Prefix(t)})
	if err != nil {
		panic(err)
	}
	room := core.Room("sale", admission.Policy{
		Enabled: true, Method: admission.FIFO, Rate: 1, Burst: 1000, // a visitor every 1,000 seconds, the first one at once
		Absence: 5 * time.Minute, ClaimWindow: 5 * time.Minute, SessionTTL: 15 * time.Minute, OnStoreError: admission.OnErrorWait,
	})
	if err := room.Tick(ctx); err != nil { // core.Run(ctx) ticks all rooms
		panic(err)
	}
	join := func() admission.Standing {
		var a admission.Arrival
		_, _ = rand.Read(a.ID[:])
		_, _ = rand.Read(a.Client[:])
		s, refusal, err := room.Join(ctx, a)
		if err != nil || refusal != admission.Granted {
			panic(fmt.Sprint(refusal, err))
		}
		return s
	}
	first, second := join(), join()
	fmt.Println("first visitor has a session:", first.State == admission.Active)
	fmt.Println("second visitor waits:", second.State == admission.Waiting, "with", room.Ahead(second.Ticket.Order), "ahead")

	rate := int64(20_000) // thousandths of a visitor per second
	if err := room.Patch(ctx, "operator", admission.Live{Rate: &rate}); err != nil {
		panic(err)
	}
	polls := time.NewTicker(50 * time.Millisecond)
	defer polls.Stop()
	for second.State == admission.Waiting {
		<-polls.C
		if err := room.Tick(ctx); err != nil {
			panic(err)
		}
		if second, err = room.Check(ctx, second.Ticket); err != nil {
			panic(err)
		}
	}
	second, err = room.Claim(ctx, second.Ticket)
	fmt.Println("second visitor has a session:", second.State == admission.Active, err)

	// Output:
	// first visitor has a session: true
	// second visitor waits: true with 0 ahead
	// second visitor has a session: true <nil>
}

package admission

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
)

func TestCore_SettlesAfterFirstTickAndRunsAgain(t *testing.T) {
	core, err := New(Options{Client: redistest.Client(t), Prefix: redistest.Prefix(t), Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	core.Room("sale", basePolicy)
	for range 2 {
		running, stop := context.WithCancel(t.Context())
		var loops sync.WaitGroup
		loops.Go(func() {
			if err := core.Run(running); err != nil {
				t.Error(err)
			}
		})
		settling := ctx5(t)
		core.Settle(settling)
		if settling.Err() != nil {
			t.Error("Settle waited for its deadline")
		}
		stop()
		loops.Wait()
	}
}

// asked is a hook that closes c when the first command is sent.
type asked struct {
	once sync.Once
	c    chan struct{}
}

func (a *asked) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (a *asked) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		a.once.Do(func() { close(a.c) })
		return next(ctx, cmd)
	}
}

func (a *asked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestTick_SilentStoreBlocksNoReader(t *testing.T) {
	srv := redistest.Server(t)
	client := srv.Client()
	hook := &asked{c: make(chan struct{})}
	client.AddHook(hook)
	core, err := New(Options{Client: client, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	r := core.Room("sale", basePolicy)
	srv.Stop()
	ticked := make(chan error, 1)
	go func() { ticked <- r.Tick(t.Context()) }()
	<-hook.c
	looked := make(chan struct{})
	go func() {
		core.Up()
		core.Room("other", basePolicy)
		close(looked)
	}()
	select {
	case <-looked:
	case err := <-ticked:
		t.Errorf("reading the rooms waited for the deadline of the store call: %v", err)
		ticked <- err
	}
	srv.Cont()
	<-ticked
	<-looked
}

func TestBatcher_PanicIsErrorForAll(t *testing.T) {
	sending := make(chan struct{})
	b := &batcher[int, int]{wait: time.Hour, send: func(context.Context, []int) ([]int, error) {
		<-sending
		panic("send")
	}}
	var all sync.WaitGroup
	errs := make(chan error, batchMost)
	for range batchMost {
		all.Go(func() {
			defer func() { _ = recover() }() // of the leader
			_, err := b.ask(t.Context(), 1)
			errs <- err
		})
	}
	close(sending)
	all.Wait()
	close(errs)
	n := 0
	for err := range errs {
		n++
		if err == nil {
			t.Fatal("a reply that the store did not send")
		}
	}
	if n != batchMost-1 {
		t.Fatalf("%d of %d callers got the error", n, batchMost-1)
	}
}

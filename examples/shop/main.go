package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	listen   string
	delay    time.Duration
	capacity int
	facts    string // URL of the room's facts; empty: none are published
	token    string // a file
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program immediately
	opt, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		var l net.Listener
		if l, err = net.Listen("tcp", opt.listen); err == nil {
			err = serve(ctx, l, opt, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(2)
	}
}

func parse(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("shop", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.listen, "listen", "127.0.0.1:9000", "where to serve")
	f.DurationVar(&o.delay, "delay", 0, "how long every page and purchase takes, as behind a slow database")
	f.IntVar(&o.capacity, "capacity", 0, "how many pages and purchases are worked on at a time; the others wait their turn; 0: any number")
	f.StringVar(&o.facts, "facts", "", "publish what is left to those who wait: the URL of a room's facts, as http://127.0.0.1:9090/admin/v1/rooms/default/facts")
	f.StringVar(&o.token, "facts-token-file", "", "file with a token of the role facts, for --facts")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("argument %q: the shop takes flags only", f.Arg(0))
	case o.delay < 0:
		return o, fmt.Errorf("--delay %s: want 0 or more", o.delay)
	case o.capacity < 0:
		return o, fmt.Errorf("--capacity %d: want 0 or more", o.capacity)
	case o.facts != "" && !strings.HasPrefix(o.facts, "http://") && !strings.HasPrefix(o.facts, "https://"):
		return o, fmt.Errorf("--facts %s: want a URL that begins with http:// or https://", o.facts)
	case o.token != "" && o.facts == "":
		return o, errors.New("--facts-token-file: is used with --facts only")
	}
	return o, nil
}

// serve runs until ctx ends, then waits a few seconds for running requests. Live seat maps end immediately: their readers
// reconnect.
func serve(ctx context.Context, l net.Listener, opt options, log *slog.Logger) error {
	s, err := newShop(log)
	if err != nil {
		return err
	}
	srv := &http.Server{
		Handler:           s.handler(opt.delay, opt.capacity),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	log.Info("listening", "addr", l.Addr().String(), "delay", opt.delay, "capacity", opt.capacity)
	if opt.facts != "" {
		p := publisher{url: opt.facts, tokenFile: opt.token, every: 2 * time.Second, log: log}
		publishing, stop := context.WithCancel(ctx)
		var over sync.WaitGroup
		over.Go(func() { p.run(publishing, s) })
		defer over.Wait()
		defer stop()
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err = <-failed:
		s.endLive()
		s.sockets.Wait()
		return err
	case <-ctx.Done():
	}
	log.Info("closing")
	s.endLive()
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := srv.Shutdown(finish); err != nil {
		_ = srv.Close()
		return fmt.Errorf("closing: %w", err)
	}
	s.sockets.Wait()
	<-failed
	return nil
}

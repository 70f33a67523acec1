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
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	listen   string
	delay    time.Duration
	capacity int
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

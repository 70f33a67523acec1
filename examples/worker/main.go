package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9" //nolint:depguard // a custom program opens its own client

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/api"
	"github.com/anteroom/anteroom/bulk/dashboard"
	"github.com/anteroom/anteroom/bulk/store"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program immediately
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	o, err := fromEnvironment(os.Getenv)
	if err == nil {
		var l net.Listener
		if l, err = net.Listen("tcp", o.listen); err == nil {
			err = run(ctx, l, o, log)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(2)
	}
}

// options are read from the environment.
type options struct {
	store  *redis.Options
	prefix string
	listen string
	token  string
	count  int // 0: the engine's default
}

func fromEnvironment(env func(string) string) (o options, err error) {
	url := env("ANTEROOM_STORE__URL")
	if url == "" {
		return o, errors.New("ANTEROOM_STORE__URL is empty: set it to the store, such as redis://127.0.0.1:6379")
	}
	if o.store, err = redis.ParseURL(url); err != nil {
		return o, fmt.Errorf("ANTEROOM_STORE__URL: %w", err)
	}
	// The engine repeats the calls that may be repeated; the client must not.
	o.store.MaxRetries, o.store.ContextTimeoutEnabled = -1, true
	if o.prefix = env("ANTEROOM_STORE__PREFIX"); o.prefix == "" {
		o.prefix = "invoices"
	}
	if o.listen = env("ANTEROOM_LISTEN"); o.listen == "" {
		o.listen = "127.0.0.1:8090"
	}
	o.token = env("ANTEROOM_ADMIN__TOKEN")
	if text := env("ANTEROOM_WORKER__COUNT"); text != "" {
		if o.count, err = strconv.Atoi(text); err != nil || o.count < 1 {
			return o, fmt.Errorf("ANTEROOM_WORKER__COUNT %q: use a number of 1 or more", text)
		}
	}
	return o, nil
}

// run runs jobs until ctx ends; then it waits for running jobs or returns them to the queue.
func run(ctx context.Context, l net.Listener, o options, log *slog.Logger) error {
	defer func() { _ = l.Close() }()
	client := redis.NewClient(o.store)
	defer func() { _ = client.Close() }()
	registry := prometheus.NewRegistry()
	metrics := bulk.NewMetrics(registry, "invoices")
	jobs, err := store.New(store.Options{Client: client, Prefix: o.prefix, Timeout: time.Second, Settings: store.Defaults(), Log: log,
		Observe: metrics.ObserveStore})
	if err != nil {
		return err
	}
	engine, err := bulk.New(bulk.Options{Store: jobs, Worker: bulk.WorkerOptions{Count: o.count}, Metrics: metrics, Log: log})
	if err != nil {
		return err
	}
	engine.Register("invoice", bulk.HandlerFunc(invoice))
	engine.RegisterReducer("revenue", revenue)

	addr, tcp := l.Addr().(*net.TCPAddr)
	front, err := api.New(api.Options{
		Store: jobs, Token: o.token, RequireToken: !tcp || !addr.IP.IsLoopback(),
		AllowType: func(kind string) bool { return slices.Contains(engine.Types(), kind) },
		Metrics:   promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		Dashboard: dashboard.Handler(dashboard.Options{Types: engine.Types()}), Log: log,
	})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: front.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() {
		defer stop() // the worker does not run without its API
		served <- server.Serve(l)
	}()
	log.Info("listening", "addr", l.Addr().String())
	err = engine.Run(ctx)
	front.Close()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(closing))
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

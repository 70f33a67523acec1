// Command bots tries to take as many places of a room as it can with cheap strategies. It reports how many places it
// received, what refused the rest, and the processor time of a place. The gateway has to trust the address of this machine as a
// proxy (the default for loopback), since every try sets its address in X-Forwarded-For. Only use it against your own gateway.
//
//	go run ./test/bots --target http://127.0.0.1:8080 --room sale --tries 10000
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	targets := flag.String("target", "http://127.0.0.1:8080", "gateways, separated by commas, used in turn")
	room := flag.String("room", "default", "the room")
	tries := flag.Int("tries", 2000, "tries of each strategy")
	limit := flag.Duration("time", 30*time.Second, "longest time of each strategy")
	clients := flag.Int("clients", 32, "requests at the same time")
	workers := flag.Int("workers", 2, "cores that solve proofs of work")
	only := flag.String("only", "", "strategies, separated by commas; empty: all")
	asJSON := flag.Bool("json", false, "print JSON, a strategy a line")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	f := &farm{
		targets: strings.Split(*targets, ","), room: *room, tries: *tries, clients: *clients, workers: *workers,
		http: &http.Client{
			Transport:     &http.Transport{MaxIdleConnsPerHost: *clients, DisableCompression: true},
			Timeout:       10 * time.Second,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if err := run(ctx, f, *only, *limit, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "bots:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f *farm, only string, limit time.Duration, asJSON bool) error {
	chosen := strategies
	if only != "" {
		chosen = nil
		for name := range strings.SplitSeq(only, ",") {
			s := find(name)
			if s == nil {
				return fmt.Errorf("unknown strategy %q: want some of %s", name, names())
			}
			chosen = append(chosen, *s)
		}
	}
	if !asJSON {
		fmt.Printf("%-16s %8s %8s %8s %10s  %s\n", "strategy", "tries", "places", "seconds", "CPU/place", "refused by")
	}
	for i := range chosen {
		within, cancel := context.WithTimeout(ctx, limit)
		r, err := f.attack(within, &chosen[i])
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", chosen[i].name, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if asJSON {
			if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
				return err
			}
			continue
		}
		fmt.Println(r)
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/child"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "abuse:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var gateway string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "abuse",
		Short: "Count the ambiguous requests and answers that nginx, HAProxy, a bare fasthttp proxy and the gateway let through",
		Long: `A case is passed where the request is refused, or reaches the origin in a form that can be read in one way only; where the
gateway promises to refuse, nothing else passes for it. It is asked with a pass. It is an error if it does not pass every case.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), cmd.OutOrStdout(), gateway, verbose)
		},
	}
	cmd.Flags().StringVar(&gateway, "gateway", "bin/gateway", "the gateway's program")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "say of each server what it let through, and how")
	return cmd
}

// together is how many cases are tried at a time on each server.
const together = 16

func run(ctx context.Context, out io.Writer, gateway string, verbose bool) (err error) {
	dir, err := os.MkdirTemp("", "anteroom-abuse-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // a master that is root has workers that are not
		return err
	}
	all := cases()
	targets := []*target{{name: "nginx"}, {name: "HAProxy"}, {name: "fasthttp"}, {name: "gateway"}}
	starts := []func(context.Context, string, *target) error{startNginx, startHAProxy, startFasthttp, startGateway(gateway)}
	for i, t := range targets {
		if t.origin, err = newRecorder(all); err != nil {
			return err
		}
		defer t.origin.close()
		if t.addr, err = child.FreePort(); err != nil {
			return err
		}
		err := starts[i](ctx, dir, t)
		if t.stop != nil {
			defer t.stop()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	faults := make([][]string, len(targets))
	group, gctx := errgroup.WithContext(ctx)
	for i, t := range targets {
		faults[i] = make([]string, len(all))
		group.Go(func() error { return t.try(gctx, all, faults[i]) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return report(out, all, targets, faults, verbose)
}

// try sends every case and judges it.
func (t *target) try(ctx context.Context, all []abuse, faults []string) error {
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(together)
	said := make([]string, len(all))
	for i, c := range all {
		group.Go(func() (err error) {
			if gctx.Err() == nil {
				said[i], err = converse(t.addr, c, t.fill(c.send, i))
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	t.origin.settle()
	for i, c := range all {
		c.send = t.fill(c.send, i)
		faults[i] = judge(c, t.pass != "", t.origin.of(i), said[i])
	}
	for _, m := range t.origin.stray {
		fmt.Fprintf(os.Stderr, "%s: its origin got a request of no case: %.200q\n", t.name, m.header)
	}
	return nil
}

func (t *target) fill(send string, i int) string {
	return strings.NewReplacer("§", fmt.Sprintf("%03d", i), "¶", t.pass).Replace(send)
}

// How long a client listens: to an answer that has to come, and after the last byte otherwise.
const (
	patience = 10 * time.Second
	silence  = time.Second
)

// converse sends a case and returns what the server said until it closed, fell silent, or had said all that was asked.
func converse(addr string, c abuse, send string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(conn, send) // a server may refuse before it has read all
		if c.stop {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
	}()
	var said []byte
	buf := make([]byte, 16<<10)
	wait := silence
	if c.want == serve || c.want == bad {
		wait = patience
	}
	for {
		if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
			break
		}
		n, err := conn.Read(buf)
		said = append(said, buf[:n]...)
		if err != nil {
			break
		}
		if wait == patience && final(string(said)) >= strings.Count(send, "X-Case:") {
			wait = silence // for what should not come
		}
	}
	_ = conn.Close()
	<-sent
	return string(said), nil
}

// final counts the complete answers but the informational ones.
func final(said string) (n int) {
	for _, a := range answersOf(said) {
		if a.complete && !strings.HasPrefix(a.first, "HTTP/1.1 1") {
			n++
		}
	}
	return n
}

func report(out io.Writer, all []abuse, targets []*target, faults [][]string, verbose bool) error {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprint(t, "case")
	passed := make([]int, len(targets))
	for i, target := range targets {
		fmt.Fprintf(t, "\t%s", target.name)
		for _, why := range faults[i] {
			if why == "" {
				passed[i]++
			}
		}
	}
	fmt.Fprintln(t)
	for k, c := range all {
		row := c.name
		some := false
		for i := range targets {
			if faults[i][k] == "" {
				row += "\t·"
			} else {
				row += "\tLET THROUGH"
				some = true
			}
		}
		if some {
			fmt.Fprintln(t, row)
		}
	}
	fmt.Fprintf(t, "passed of %d", len(all))
	for i := range targets {
		fmt.Fprintf(t, "\t%d", passed[i])
	}
	fmt.Fprintln(t)
	if err := t.Flush(); err != nil {
		return err
	}
	ours := len(targets) - 1
	for i, target := range targets {
		for k, why := range faults[i] {
			if why != "" && (verbose || i == ours) {
				fmt.Fprintf(out, "%s, %s: %s\n", target.name, all[k].name, why)
			}
		}
	}
	if passed[ours] < len(all) {
		return fmt.Errorf("the gateway passes %d of %d cases", passed[ours], len(all))
	}
	return nil
}

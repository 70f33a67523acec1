// Command abuse sends requests and responses that two parsers may read in two ways through nginx, HAProxy, a bare fasthttp
// proxy and the gateway, and counts what each refuses or makes unambiguous. An origin on raw sockets records what it
// receives.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/rig"
)

func main() { rig.Main(command()) }

func command() *cobra.Command {
	var gateway string
	var verbose bool
	cmd := rig.Command("abuse", "Count the ambiguous requests and responses that nginx, HAProxy, a bare fasthttp proxy and the gateway let through",
		`A case is passed if the request is refused, or reaches the origin in a form with one reading only; what the gateway promises to
refuse it has to refuse. The requests carry a pass. It is an error if the gateway does not pass every case.`,
		func(r *rig.Run) { run(r, gateway, verbose) })
	cmd.Flags().StringVar(&gateway, "gateway", "bin/gateway", "the gateway's program")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "print what each server let through, and how")
	return cmd
}

// together is the number of cases that are sent at the same time to each server.
const together = 16

func run(r *rig.Run, gateway string, verbose bool) {
	all := cases()
	targets := startTargets(r, gateway, all)
	faults := make([][]string, len(targets))
	group, ctx := errgroup.WithContext(r)
	for i, t := range targets {
		faults[i] = make([]string, len(all))
		group.Go(func() error { return t.try(ctx, all, faults[i]) })
	}
	rig.Check(group.Wait())
	report(r.Out, all, targets, faults, verbose)
}

// try sends every case and judges it.
func (t *target) try(ctx context.Context, all []abuse, faults []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(together)
	received := make([]string, len(all))
	for i, c := range all {
		group.Go(func() (err error) {
			if ctx.Err() == nil {
				received[i], err = converse(t.addr, c, t.fill(c.send, i))
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	rig.Sleep(ctx, 500*time.Millisecond) // for requests that the origin has not read yet
	for i, c := range all {
		c.send = t.fill(c.send, i)
		faults[i] = judge(c, t.pass != "", t.origin.of(i), received[i])
	}
	for _, m := range t.origin.unknown {
		fmt.Fprintf(os.Stderr, "%s: its origin received a request of no case: %.200q\n", t.name, m.header)
	}
	return nil
}

func (t *target) fill(send string, i int) string {
	return strings.NewReplacer("§", fmt.Sprintf("%03d", i), "¶", t.pass).Replace(send)
}

// The timeouts of a client: for a response that it expects, and after the last byte that it received.
const (
	patience = 10 * time.Second
	silence  = time.Second
)

// converse sends a case and returns the bytes that the server sent until it closed the connection, was silent for a second, or
// had sent every response.
func converse(addr string, c abuse, send string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(conn, send) // a server may refuse before it has read everything
		if c.stop {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
	}()
	var received []byte
	buf := make([]byte, 16<<10)
	wait := silence
	if c.want == serve || c.want == bad {
		wait = patience
	}
	for conn.SetReadDeadline(time.Now().Add(wait)) == nil {
		n, err := conn.Read(buf)
		received = append(received, buf[:n]...)
		if err != nil {
			break
		}
		if wait == patience && final(string(received)) >= strings.Count(send, "X-Case:") {
			wait = silence // for bytes that should not follow
		}
	}
	_ = conn.Close()
	<-sent
	return string(received), nil
}

// final returns the number of complete responses without the informational ones.
func final(received string) (n int) {
	for _, a := range responses(received) {
		if a.complete && !strings.HasPrefix(a.first, "HTTP/1.1 1") {
			n++
		}
	}
	return n
}

// report prints the cases that a server let through. It is an error if the gateway is one of them.
func report(out io.Writer, all []abuse, targets []*target, faults [][]string, verbose bool) {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	passed := make([]int, len(targets))
	header := "case"
	for _, target := range targets {
		header += "\t" + target.name
	}
	fmt.Fprintln(t, header)
	reasons := make([]string, len(targets))
	ours := len(targets) - 1
	for k, c := range all {
		row := c.name
		for i, target := range targets {
			why := faults[i][k]
			if why == "" {
				passed[i]++
				row += "\t·"
				continue
			}
			row += "\tLET THROUGH"
			if verbose || i == ours {
				reasons[i] += fmt.Sprintf("%s, %s: %s\n", target.name, c.name, why)
			}
		}
		if strings.Contains(row, "\tLET THROUGH") {
			fmt.Fprintln(t, row)
		}
	}
	footer := fmt.Sprintf("passed of %d", len(all))
	for _, n := range passed {
		footer += fmt.Sprintf("\t%d", n)
	}
	fmt.Fprintln(t, footer)
	rig.Check(t.Flush())
	rig.Must(io.WriteString(out, strings.Join(reasons, "")))
	rig.Require(passed[ours] == len(all), "the gateway passes %d of %d cases", passed[ours], len(all))
}

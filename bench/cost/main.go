package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// most is how many times a plain request's processor time a request may cost.
const most = 10

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cost:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var gateway string
	var rounds int
	var only string
	cmd := &cobra.Command{
		Use:           "cost",
		Short:         "Measure the processor time of the worst requests that the gateway's limits let in, beside plain ones of their length",
		Long:          fmt.Sprintf("It is an error if one of them costs more than %d times a plain one in the same place.", most),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), cmd.OutOrStdout(), gateway, only, rounds)
		},
	}
	cmd.Flags().StringVar(&gateway, "gateway", "bin/gateway", "the gateway's program")
	cmd.Flags().StringVar(&only, "only", "", "measure only cases whose place or name contains this")
	cmd.Flags().IntVar(&rounds, "rounds", 7, "rounds of each case, of which the median counts")
	return cmd
}

func run(ctx context.Context, out io.Writer, gateway, only string, rounds int) (err error) {
	dir, err := os.MkdirTemp("", "anteroom-cost-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	site, err := startOrigin()
	if err != nil {
		return err
	}
	defer site.close()
	keys, err := newSiteKeys()
	if err != nil {
		return err
	}
	jwks, err := serveKeys(keys)
	if err != nil {
		return err
	}
	defer jwks.Close()
	provider := serveRefusals()
	defer provider.Close()
	var askers [2]*asker
	for i, header := range []string{"X-Forwarded-For", "Forwarded"} {
		a, stop, err := startGateway(ctx, gateway, dir, header, site.addr(), jwks.URL, provider.URL)
		if err != nil {
			return err
		}
		defer stop()
		defer a.close()
		askers[i] = a
	}
	pass, err := askers[0].withPass()
	if err != nil {
		return err
	}
	if err := askers[0].fill(waiting, account, patterns); err != nil {
		return err
	}
	if err := askers[1].fill(waiting); err != nil {
		return err
	}
	var results []*result
	for _, w := range walks(pass, keys) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !strings.Contains(w.place.name+", "+w.name, only) {
			continue
		}
		a := askers[0]
		if w.second {
			a = askers[1]
		}
		r, err := a.measure(&w, max(1, rounds))
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	return report(out, results)
}

// walks are all cases in all places.
func walks(pass place, keys []siteKey) (all []walk) {
	for _, p := range []place{outside, waiting, pass, patterns} {
		for _, w := range everywhere() {
			if w.second && p != outside {
				continue
			}
			w.place = p
			all = append(all, w)
		}
		for _, w := range paths() {
			w.place = p
			if p != outside {
				w.target = p.path + w.target
			} else if w.target[0] == '?' {
				w.target = "/" + w.target
			}
			all = append(all, w)
		}
	}
	for _, w := range refusals() {
		w.place = outside
		all = append(all, w)
	}
	all = append(append(append(all, accounts(keys)...), forgeries()...), bodies()...)
	return append(all, originAnswers(pass)...)
}

// report prints the table and names what costs too much.
func report(out io.Writer, results []*result) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "place\trequest\tbytes\tstatus\tplain, µs\tµs\tratio")
	over := 0
	for _, r := range results {
		mark := ""
		if r.ratio > most {
			mark, over = "  MISSED", over+1
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%.0f\t%.0f\t%.1f%s\n", r.place.name, r.name, r.bytes, r.status,
			float64(r.plain.Nanoseconds())/1e3, float64(r.cost.Nanoseconds())/1e3, r.ratio, mark)
	}
	if err := t.Flush(); err != nil { // reports what a write before it ran into
		return err
	}
	if over > 0 {
		return fmt.Errorf("%d of %d requests cost more than %d times a plain one", over, len(results), most)
	}
	_, err := fmt.Fprintf(out, "%d requests; none costs more than %d times a plain one\n", len(results), most)
	return err
}

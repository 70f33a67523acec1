package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bench/slow"
	"github.com/anteroom/anteroom/bench/visitor"
)

func slowCommand(s *shared) *cobra.Command {
	var o slow.Options
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "slow",
		Short: "Hold many connections that are idle, send a byte a second or never read",
		Long: `A quarter of the clients connect and say nothing, a quarter send a byte of their header each second, a quarter a byte of
their body, and a quarter ask for a long answer and do not read it. Who is sent away comes back. When all are connected
it says so on stdout; at the end, or when interrupted, it prints what became of them as JSON.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Clients < 1 || duration <= 0 {
				return fmt.Errorf("--clients %d, --duration %s: want at least 1, more than 0s", o.Clients, duration)
			}
			_, addrs, err := plain(s.to.URLs)
			if err != nil {
				return err
			}
			client, err := s.client()
			if err != nil {
				return err
			}
			defer client.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), duration)
			defer cancel()
			p, err := visitor.Gather(ctx, client, 1, 0, 1)
			if err != nil {
				return err
			}
			client.Close()
			o.Addr, o.Pass = addrs[0], p.LetIn[0].Pass
			crowd := slow.New(o)
			report := make(chan slow.Report, 1)
			go func() { report <- crowd.Run(ctx) }()
			select {
			case <-crowd.Ready():
				fmt.Fprintln(cmd.OutOrStdout(), "holding", o.Clients)
			case <-ctx.Done():
			}
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(<-report)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Clients, "clients", 10_000, "how many; each needs a file descriptor here and up to two in the gateway")
	f.DurationVar(&duration, "duration", time.Minute, "how long")
	f.StringVar(&o.Upload, "upload", "/", "a path whose origin reads a body to its end before it answers")
	f.StringVar(&o.Long, "long", "/", "a path with a long answer")
	return cmd
}

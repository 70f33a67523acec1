package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/admission/drawcheck"
	"github.com/anteroom/anteroom/internal/cli"
)

// drawError is returned for a draw that contradicts its seed; the exit code is 1.
type drawError struct{ wrong int }

func (e *drawError) Error() string { return fmt.Sprintf("the draw does not hold: %d wrong", e.wrong) }

func newVerifyDraw() *cobra.Command {
	return &cobra.Command{
		Use:   "verify-draw FILE",
		Short: "Recompute a lottery's draw from its published seed",
		Long: `verify-draw reads a lottery's published commitment and seed, and tickets. It recomputes
the commitment and the order of each ticket.

FILE (- for stdin) holds JSON values, one after another or in arrays, in any order:
  the response to GET /.waiting-room/{room}/draw, which has the seed one absence after the opening
  tickets: {"id": …, "order": …, "nonce": …}, whole waiting tokens as strings, or responses with a "token";
           order (the claim ord) and nonce (sent with the join) may be left out

Exit codes: 0 the draw is right, 1 the commitment or an order is wrong, 2 the file lacks values.`,
		Args: cli.OneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := cli.Open(args[0], cmd.InOrStdin())
			if err != nil {
				return &cli.UsageError{Err: err}
			}
			defer func() { _ = in.Close() }()
			draw, err := drawcheck.Read(in)
			if err != nil {
				return &cli.UsageError{Err: fmt.Errorf("%s: %w", args[0], err)}
			}
			wrong, err := draw.Report(cmd.OutOrStdout())
			if err == nil && wrong > 0 {
				err = &drawError{wrong}
			}
			return err
		},
	}
}

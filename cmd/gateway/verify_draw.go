package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/admission/drawcheck"
	"github.com/anteroom/anteroom/internal/cli"
)

// drawError is a draw that does not hold; the exit code is 1.
type drawError struct{ wrong int }

func (e *drawError) Error() string { return fmt.Sprintf("the draw does not hold: %d wrong", e.wrong) }

func newVerifyDraw() *cobra.Command {
	return &cobra.Command{
		Use:   "verify-draw FILE",
		Short: "Recompute a lottery's draw from its published seed",
		Long: `verify-draw reads what a lottery has published, and tickets, and recomputes the draw:
that the seed is the one which was committed to, and each ticket's order.

FILE (- for stdin) holds JSON values, one after another or in arrays, in any order:
  the answer of GET /.waiting-room/{room}/draw, which has the seed one absence after the opening
  tickets: {"id": …, "order": …, "nonce": …}, whole waiting tokens as strings, or answers with a "token";
           order (what the token claims as ord) and nonce (with which you joined) may be left out

Exit codes: 0 nothing contradicts the draw, 1 something does, 2 the file does not say enough.`,
		Args: cli.OneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			in := io.Reader(cmd.InOrStdin())
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return &cli.UsageError{Err: err}
				}
				defer func() { _ = f.Close() }()
				in = f
			}
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

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/admission/audit"
	"github.com/anteroom/anteroom/internal/cli"
)

// auditFlags are the flags of "gateway audit verify".
type auditFlags struct {
	url, tokenFile string
	all            bool
}

func newAudit() *cobra.Command {
	group := &cobra.Command{Use: "audit", Short: "Verify the audit log"}
	var flags auditFlags
	verify := &cobra.Command{
		Use:   "verify [--url URL [--token-file FILE]] [FILE]",
		Short: "Verify the chain of the audit log of a gateway, or of an export (- for stdin)",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (flags.url == "") == (len(args) == 0) {
				return errors.New("give either --url, the address of admin.listen, or the FILE of an export")
			}
			in, err := openExport(cmd, args, flags)
			if err != nil {
				return err
			}
			defer in.Close()
			return verifyExport(in, cmd.OutOrStdout(), flags.url != "" || flags.all)
		},
	}
	verify.Flags().StringVar(&flags.url, "url", "", "address of a gateway's admin.listen, such as http://127.0.0.1:9090")
	verify.Flags().StringVar(&flags.tokenFile, "token-file", "", "file with a token that may read the audit log")
	verify.Flags().BoolVar(&flags.all, "all", false, fmt.Sprintf("the file has all that the store keeps: earlier entries may be absent only beyond %d", audit.Kept))
	group.AddCommand(verify)
	return group
}

func openExport(cmd *cobra.Command, args []string, flags auditFlags) (io.ReadCloser, error) {
	if flags.url == "" {
		return cli.Open(args[0], cmd.InOrStdin())
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(flags.url, "/")+"/admin/v1/audit/export", nil)
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	if flags.tokenFile != "" {
		token, err := os.ReadFile(flags.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s replied %s: %s", flags.url, response.Status, text)
	}
	return io.NopCloser(strings.NewReader(string(text))), nil
}

// verifyExport prints a line for each room. It returns an error if a chain is broken.
func verifyExport(in io.Reader, out io.Writer, all bool) error {
	rooms, entries, err := audit.ReadLines(in)
	if err != nil {
		return err
	}
	verify, broken := audit.Verify, 0
	if all {
		verify = audit.VerifyKept
	}
	for _, room := range rooms {
		c, err := verify(entries[room])
		if err != nil {
			broken++
			fmt.Fprintf(out, "%s: BROKEN: %v\n", room, err)
			continue
		}
		fmt.Fprintf(out, "%s: %d entries verified, seq %d to %d, head %s", room, c.Entries, c.Anchor.Seq+1, c.Head.Seq, cmp.Or(c.Head.Hash, "-"))
		if c.Anchor.Seq > 0 {
			fmt.Fprintf(out, "; %d trimmed, anchor %s", c.Anchor.Seq, c.Anchor.Hash)
		}
		if c.Unchained > 0 {
			fmt.Fprintf(out, "; %d entries from before the chain, unproven", c.Unchained)
		}
		if len(c.Lost) > 0 {
			fmt.Fprintf(out, "; the store lost earlier entries: see chain_lost at seq %d", c.Lost)
		}
		fmt.Fprintln(out)
	}
	if broken > 0 {
		return fmt.Errorf("the audit log of %d of %d rooms is broken", broken, len(rooms))
	}
	return nil
}

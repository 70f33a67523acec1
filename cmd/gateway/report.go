package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/internal/cli"
)

// reportTimeout bounds the request for a report.
const reportTimeout = time.Minute

// newReport returns the command that prints the report of a room.
func newReport() *cobra.Command {
	var room, from, to, format, server, tokenFile string
	cmd := &cobra.Command{
		Use:   "report --room ROOM [--from TIME] [--to TIME]",
		Short: "Print what happened in a room: arrivals, waits, estimates, changes",
		Long: `report reads the report of a room from the operators' socket of a running gateway and
prints it. TIME is RFC 3339, such as 2026-11-28T12:00:00Z, or seconds since 1970.
The default is the last 24 hours. Minutes are kept for 24 hours, ten minutes for 30 days.

  gateway report --room sale --from 2026-11-28T10:00:00Z --to 2026-11-28T12:00:00Z > sale.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if room == "" {
				return &cli.UsageError{Err: errors.New("--room is missing: name the room")}
			}
			if !slices.Contains([]string{"html", "csv", "json", "rows"}, format) {
				return &cli.UsageError{Err: fmt.Errorf("--format %q: use html, csv, json or rows", format)}
			}
			token := ""
			if tokenFile != "" {
				text, err := os.ReadFile(tokenFile)
				if err != nil {
					return &cli.UsageError{Err: fmt.Errorf("--token-file: %w", err)}
				}
				token = strings.TrimSpace(string(text))
			}
			q := url.Values{"format": {format}}
			for name, value := range map[string]string{"from": from, "to": to} {
				if value != "" {
					q.Set(name, value)
				}
			}
			return fetchReport(cmd.Context(), cmd.OutOrStdout(), strings.TrimRight(server, "/")+"/admin/v1/rooms/"+url.PathEscape(room)+"/report?"+q.Encode(), token)
		},
	}
	f := cmd.Flags()
	f.StringVar(&room, "room", "", "`ROOM` to report on")
	f.StringVar(&from, "from", "", "first `TIME`")
	f.StringVar(&to, "to", "", "last `TIME`")
	f.StringVar(&format, "format", "html", "html, csv, json, or rows: the recorded rows themselves")
	f.StringVar(&server, "server", "http://127.0.0.1:9090", "`URL` of the operators' socket")
	f.StringVar(&tokenFile, "token-file", "", "`FILE` with a token of the role viewer")
	return cmd
}

// fetchReport copies a report to out.
func fetchReport(ctx context.Context, out io.Writer, from, token string) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return &cli.UsageError{Err: fmt.Errorf("--server: %w", err)}
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("cannot reach the gateway; --server names its operators' socket: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		var p struct{ Detail string }
		_ = json.NewDecoder(io.LimitReader(answer.Body, 64<<10)).Decode(&p) // without a detail the status remains
		return fmt.Errorf("the gateway responds %s: %s", answer.Status, p.Detail)
	}
	_, err = io.Copy(out, answer.Body)
	return err
}

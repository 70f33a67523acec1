package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bulk/client"
)

// newSchedules returns the commands about schedules.
func newSchedules() *cobra.Command {
	cmd := &cobra.Command{Use: "schedules", Short: "List, create, change and delete schedules, which create groups at set times"}
	cmd.AddCommand(newScheduleList(),
		newScheduleCommand("show ID", "Show a schedule and its next runs", (*client.Client).Schedule),
		newScheduleCreate(),
		newScheduleCommand("pause ID", "Make no more runs of a schedule", (*client.Client).PauseSchedule),
		newScheduleCommand("resume ID", "Resume a schedule: it runs next at its first time from now on", (*client.Client).ResumeSchedule),
		newScheduleDelete())
	return cmd
}

func newScheduleList() *cobra.Command {
	var tenant string
	cmd := newReport("list", "List the schedules", cobra.NoArgs,
		func(ctx context.Context, c *client.Client, _ *cobra.Command, _ []string) ([]*client.Schedule, error) {
			return c.Schedules(ctx, tenant)
		}, func(w io.Writer, all []*client.Schedule) error {
			t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(t, "SCHEDULE\tTENANT\tCRON\tTIME ZONE\tNEXT RUN\tLAST RUN\tSTARTED\tSKIPPED\tMISSED\tFAILED")
			for _, s := range all {
				_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\n", s.ID, s.Tenant, s.Cron, s.TimeZone, nextRun(s), runTime(s.LastRun), s.Started, s.Skipped, s.Missed, s.Failed)
			}
			return t.Flush()
		})
	cmd.Flags().StringVar(&tenant, "tenant", "", "only those of this `TENANT`")
	return cmd
}

func nextRun(s *client.Schedule) string {
	if s.Paused || len(s.NextRuns) == 0 {
		return "paused"
	}
	return runTime(s.NextRuns[0])
}

// runTime formats the time of a run, to the minute.
func runTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04Z")
}

// newScheduleCommand returns a command that prints the schedule that call returns.
func newScheduleCommand(use, short string, call func(*client.Client, context.Context, string) (*client.Schedule, error)) *cobra.Command {
	return newReport(use, short, cobra.ExactArgs(1), func(ctx context.Context, c *client.Client, _ *cobra.Command, args []string) (*client.Schedule, error) {
		return call(c, ctx, args[0])
	}, writeSchedule)
}

func writeSchedule(w io.Writer, s *client.Schedule) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { _, _ = fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	row("schedule", "%s", s.ID)
	row("tenant", "%s", s.Tenant)
	row("cron", "%s (%s)", s.Cron, s.TimeZone)
	row("overlap", "%s", s.Overlap)
	row("catch up", "%s", s.CatchUp)
	if s.ExpiresAfter != "" {
		row("expires after", "%s", s.ExpiresAfter)
	}
	runs := make([]string, len(s.NextRuns))
	for i, at := range s.NextRuns {
		runs[i] = runTime(at)
	}
	if len(runs) == 0 {
		runs = []string{"paused"}
	}
	row("next runs", "%s", strings.Join(runs, ", "))
	if s.LastGroup != "" {
		row("last run", "%s, group %s", runTime(s.LastRun), s.LastGroup)
	}
	row("runs", "%d started, %d skipped, %d missed, %d failed", s.Started, s.Skipped, s.Missed, s.Failed)
	if s.Error != "" {
		row("error", "%s", s.Error)
	}
	return t.Flush()
}

func newScheduleCreate() *cobra.Command {
	cmd := newReport("create FILE.json", "Create a schedule from a file", cobra.ExactArgs(1),
		func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) (*client.Schedule, error) {
			text, err := readAll(cmd, args[0])
			if err != nil {
				return nil, misuse("%w", err)
			}
			var spec client.ScheduleSpec
			d := json.NewDecoder(strings.NewReader(string(text)))
			d.DisallowUnknownFields()
			if err := d.Decode(&spec); err != nil {
				return nil, misuse("%s: %w", args[0], err)
			}
			return c.CreateSchedule(ctx, spec)
		}, writeSchedule)
	cmd.Long = `create creates a schedule as POST /v1/schedules does, from a file (- is the standard input) such as

  {"id": "report", "tenant": "acme", "cron": "30 7 * * mon-fri", "time_zone": "Europe/Berlin",
   "overlap": "skip", "job": {"type": "webhook", "payload": {"report": "daily"}}}

The same file again is no error.`
	return cmd
}

func readAll(cmd *cobra.Command, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(cmd.InOrStdin()) //nolint:wrapcheck // of the standard input
	}
	return os.ReadFile(name) //nolint:wrapcheck // it names the file
}

func newScheduleDelete() *cobra.Command {
	conn := &connection{}
	return newClientCommand(conn, "delete ID", "Delete a schedule; its groups stay", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		c, _, err := conn.clients(nil)
		if err != nil {
			return err
		}
		return c.DeleteSchedule(cmd.Context(), args[0])
	})
}

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/eta/backtest"
	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/storeopen"
)

func newETA(load cli.Loader[*config.Config]) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "eta",
		Short: "Wait estimates: export a room's history, and compare estimators with it",
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return &cli.UsageError{Err: fmt.Errorf("a command is missing; see %s --help", cmd.CommandPath())}
		},
	}
	cmd.AddCommand(newExport(load), newBacktest())
	return cmd
}

func newExport(load cli.Loader[*config.Config]) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export --config FILE",
		Short: "Print the history of rooms, a minute a line",
		Long: `export prints the history of the last day, as NDJSON: one object a room and
minute, for eta backtest and tools/eta-train. Append it to a file once a day to
have more than the store keeps.`,
		Args: cli.NoArgs,
	}
	settings := cli.AddSettings(cmd, settingFlags)
	room := cmd.Flags().String("room", "", "only the room of this `ID`")
	since := cmd.Flags().Duration("since", 24*time.Hour, "how far back, as 6h; at most 24h, for the store keeps no more")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := cli.Load(cmd, settings, load)
		if err != nil {
			return err
		}
		if *since < time.Minute || *since > 24*time.Hour {
			return &cli.UsageError{Err: fmt.Errorf("--since %s is not from 1m to 24h", *since)}
		}
		rooms := make([]string, 0, len(cfg.Rooms))
		for i := range cfg.Rooms {
			if id := cfg.Rooms[i].ID; *room == "" || id == *room {
				rooms = append(rooms, id)
			}
		}
		if len(rooms) == 0 {
			return &cli.UsageError{Err: fmt.Errorf("--room %q: the configuration has no such room", *room)}
		}
		return export(cmd.Context(), cfg, rooms, int(*since/time.Minute), cmd.OutOrStdout())
	}
	return cmd
}

func export(ctx context.Context, cfg *config.Config, rooms []string, minutes int, out io.Writer) error {
	if err := storeopen.Exists(cfg.Store); err != nil {
		return &cli.UsageError{Err: err}
	}
	s, err := storeopen.Open(ctx, cfg.Store, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer s.Close()
	if s.Away != nil {
		return fmt.Errorf("store.url %s: %w", s.URL, s.Away)
	}
	w := bufio.NewWriter(out)
	lines := json.NewEncoder(w)
	for _, id := range rooms {
		plan, err := planOf(cfg, id)
		if err != nil {
			return err
		}
		history, err := admission.ReadHistory(ctx, s.Client, cfg.Store.Prefix, id, minutes)
		if err != nil {
			return fmt.Errorf("room %s: %w", id, err)
		}
		// Leave out the minutes before the room's first use.
		first := slices.IndexFunc(history, func(m admission.Minute) bool { return m.Rate > 0 || m.Joins > 0 || m.Waiting > 0 })
		if first < 0 {
			continue
		}
		for _, m := range history[first:] {
			if err := lines.Encode(exported(id, &m, plan(m.At+60))); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}

// planOf returns a function from a time (s) to the planned rate of a room (visitors/s), nil for a room without events.
func planOf(cfg *config.Config, id string) (func(int64) *float64, error) {
	i := slices.IndexFunc(cfg.Rooms, func(r config.Room) bool { return r.ID == id })
	if len(cfg.Rooms[i].Events) == 0 {
		return func(int64) *float64 { return nil }, nil
	}
	p, err := policy(cfg, &cfg.Rooms[i])
	if err != nil {
		return nil, err
	}
	return func(second int64) *float64 {
		rate := float64(p.RateAt(second*1e6-1)) / 1000
		return &rate
	}, nil
}

// exported returns the line of a file for a minute of a room's history.
func exported(room string, m *admission.Minute, planned *float64) backtest.Minute {
	return backtest.Minute{
		Planned: planned, Found: m.Found, Share: float64(m.Share) / 1000,
		Returned: m.Returned, Absent: ageCounts(m.Absent), Lapsed: ageCounts(m.Lapsed),
		Room: room, At: time.Unix(m.At, 0).UTC(), Joins: m.Joins, Admissions: m.Admissions, Abandoned: m.Abandoned,
		Waiting: m.Waiting, Rate: float64(m.Rate) / 1000, MaxActive: m.MaxActive, Active: m.Active,
		Paused: thousandths(m.Paused), WaitP50: thousandths(m.WaitP50), WaitP90: thousandths(m.WaitP90),
	}
}

// ageCounts returns counts by time in the queue in the form of the file.
func ageCounts(counts []admission.AgeTime) (list []backtest.AgeCount) {
	for _, c := range counts {
		list = append(list, backtest.AgeCount{c.From, c.Count})
	}
	return list
}

// thousandths returns seconds with three decimals.
func thousandths(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// replay holds the flags of eta backtest.
type replay struct {
	estimators []string
	synthetic  bool
	only       []string
	seeds      int
	seed       uint64
	zone       string
	weights    string
	model      string
	examples   string
	json       bool
}

func newBacktest() *cobra.Command {
	var r replay
	cmd := &cobra.Command{
		Use:   "backtest [FILE…]",
		Short: "Compare estimators with recorded or synthetic sales",
		Long: `backtest replays sales with every estimator and prints a table: the mean absolute
error of the estimates, relative to the real wait (MAPE) and in seconds (MAE); the
share of estimates that were too short; the share of waits within the range (target:
80 %); the share of estimates more than a fifth above the previous one; and MAPE from
one to three minutes after a step. FILE is the output of eta export, - standard input.
Without FILE the sales are synthetic.`,
		Args: cobra.ArbitraryArgs,
	}
	f := cmd.Flags()
	f.StringSliceVar(&r.estimators, "estimator", nil, "only these `NAMES`: "+strings.Join(eta.Names(), ", "))
	f.BoolVar(&r.synthetic, "synthetic", false, "add synthetic sales to those of the files")
	f.StringSliceVar(&r.only, "sale", nil, "only the sales (or rooms) of these `NAMES`")
	f.IntVar(&r.seeds, "seeds", 2, "play each synthetic sale `N` times")
	f.Uint64Var(&r.seed, "seed", backtest.HeldOut, "first seed of the random numbers; the same seeds produce the same table. No constant was tuned and no model trained on the default's")
	f.StringVar(&r.zone, "time-zone", "UTC", "`ZONE` of the hours of the day")
	f.StringVar(&r.weights, "weights", eta.DefaultWeights.String(), "of hourly, or learned")
	f.StringVar(&r.model, "model", "", "`FILE` of a model, for the estimator model; without it an example that was trained on synthetic sales")
	f.StringVar(&r.examples, "examples", "", "write what a model learns from to `FILE` (- for standard output), and print no table")
	f.BoolVar(&r.json, "json", false, "print NDJSON, a row a line")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return r.run(args, cmd.InOrStdin(), cmd.OutOrStdout()) }
	return cmd
}

func (r *replay) run(files []string, in io.Reader, out io.Writer) error {
	zone, err := time.LoadLocation(r.zone)
	if err != nil {
		return &cli.UsageError{Err: fmt.Errorf("--time-zone: %w", err)}
	}
	if r.seeds < 1 || r.seeds > 1000 {
		return &cli.UsageError{Err: fmt.Errorf("--seeds %d is not from 1 to 1000", r.seeds)}
	}
	sales, err := r.sales(files, in)
	if err != nil {
		return err
	}
	if r.examples != "" {
		return r.writeExamples(sales, zone, out)
	}
	contenders, err := r.contenders(zone)
	if err != nil {
		return err
	}
	rows := backtest.Table(sales, r.seed, contenders)
	if !r.json {
		return backtest.Print(out, rows)
	}
	lines := json.NewEncoder(out)
	for _, row := range rows {
		if err := lines.Encode(row); err != nil {
			return err
		}
	}
	return nil
}

func (r *replay) sales(files []string, in io.Reader) ([]backtest.Sale, error) {
	var all []backtest.Sale
	for _, name := range files {
		f, err := cli.Open(name, in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		sales, err := backtest.ReadHistory(f)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, sales...)
	}
	if r.synthetic || len(files) == 0 {
		for seed := range uint64(r.seeds) {
			all = append(all, backtest.Synthetic(r.seed+seed)...)
		}
		for range r.seeds {
			all = append(all, backtest.Lumps())
		}
		for range r.seeds {
			all = append(all, backtest.SilentLeavers())
		}
	}
	if len(r.only) > 0 {
		all = slices.DeleteFunc(all, func(s backtest.Sale) bool { return !slices.Contains(r.only, s.Name) })
	}
	if len(all) == 0 {
		return nil, &cli.UsageError{Err: fmt.Errorf("--sale %s: no such sale", strings.Join(r.only, ","))}
	}
	return all, nil
}

func (r *replay) contenders(zone *time.Location) ([]backtest.Contender, error) {
	options := eta.Options{Zone: zone, Weights: eta.DefaultWeights}
	var err error
	if r.weights != learned {
		if options.Weights, err = eta.ParseWeights(r.weights); err != nil {
			return nil, &cli.UsageError{Err: fmt.Errorf("--weights: %w", err)}
		}
	}
	names := r.estimators
	if r.model != "" {
		options.Model, err = readModel(r.model)
	} else {
		options.Model, err = eta.ExampleModel()
	}
	if err != nil {
		return nil, fmt.Errorf("--model: %w", err)
	}
	if len(names) == 0 {
		names = []string{"window", "fixed", "ema", "hourly", "model"}
	}
	contenders := make([]backtest.Contender, len(names))
	for i, name := range names {
		e, err := eta.New(name, options)
		if err != nil {
			return nil, &cli.UsageError{Err: fmt.Errorf("--estimator: %w", err)}
		}
		contenders[i] = backtest.Contender{Name: name, Estimator: e, Learn: r.weights == learned}
	}
	return contenders, nil
}

// mostExamples is about how many examples are taken of one sale.
const mostExamples = 10_000

func (r *replay) writeExamples(sales []backtest.Sale, zone *time.Location, out io.Writer) error {
	file := io.WriteCloser(nil)
	if r.examples != "-" {
		f, err := os.Create(r.examples)
		if err != nil {
			return err
		}
		out, file = f, f
	}
	w := bufio.NewWriter(out)
	lines := json.NewEncoder(w)
	for i, s := range sales {
		examples := backtest.Examples(s, r.seed+uint64(i), zone)
		for j := 0; j < len(examples); j += max(1, len(examples)/mostExamples) {
			if err := lines.Encode(examples[j]); err != nil {
				return err
			}
		}
	}
	if err := w.Flush(); err != nil || file == nil {
		return err
	}
	return file.Close()
}

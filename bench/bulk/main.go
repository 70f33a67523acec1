package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bench/child"
	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

func main() { rig.Main(command()) }

type options struct {
	bulkworker   string
	rounds, jobs int
	batch        int
	aof          bool
	only         string
	profiles     string
	shapes       string
	shards       string
}

func command() *cobra.Command {
	var o options
	cmd := rig.Command("bulk", "Compare the bulk worker with asynq in one run", "", func(r *rig.Run) {
		rig.Require(o.rounds >= 1 && o.jobs >= 1000, "--rounds %d, --jobs %d: want at least 1, 1000", o.rounds, o.jobs)
		run(r, o)
	})
	f := cmd.Flags()
	f.StringVar(&o.bulkworker, "bulkworker", "bin/bulkworker", "the bulk worker's program")
	f.IntVar(&o.rounds, "rounds", 5, "how often each is measured; the median is printed")
	f.IntVar(&o.jobs, "jobs", 20_000, "of one measurement of processing")
	f.IntVar(&o.batch, "batch", 200, "our worker.batch: most jobs of one pull")
	f.BoolVar(&o.aof, "aof", false, "let Redis keep an append-only file, synced every second")
	f.StringVar(&o.only, "only", "", "measure only these parts, separated by commas: "+strings.Join(partNames(), ", "))
	f.StringVar(&o.profiles, "profiles", "", "write a processor profile of our side of each measurement to this directory")
	f.StringVar(&o.shapes, "shapes", "10x1,50x1,200x1,10x10,50x10,50x100,50x1000", "workers x tenants of each measurement of processing")
	f.StringVar(&o.shards, "shards", "1,2,4,8", "numbers of shards of the measurement of shards")
	cmd.AddCommand(holdCommand())
	return cmd
}

// part is one of the measurements.
type part struct {
	name  string
	named bool // measured only if --only names it
	run   func(*bench) []table.Row
}

var parts = []part{
	{"enqueue", false, enqueueing},
	{"process", false, processing},
	{"groups", false, manyGroups},
	{"fairness", false, fairness},
	{"unequal", false, unequalShares},
	{"latency", false, latency},
	{"pull", false, pulling},
	{"fleet", true, fleet},
	{"shards", true, sharded},
	{"scripts", true, scripts},
	{"memory", true, memories},
	{"recovery", false, (*bench).recoveryRows},
}

func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// bench is what the parts share.
type bench struct {
	*rig.Run
	options
	redis     *rig.Redis
	sides     [2]side // asynq, ours
	recovered chan recovery
}

func run(r *rig.Run, o options) {
	wanted := map[string]bool{}
	for _, p := range parts {
		wanted[p.name] = o.only == "" && !p.named
	}
	for name := range strings.SplitSeq(o.only, ",") {
		_, is := wanted[name]
		rig.Require(is || name == "", "--only %s: no such measurement; there are %s", name, strings.Join(partNames(), ", "))
		wanted[name] = true
	}
	b := &bench{Run: r, options: o, redis: startRedis(r, o.aof), recovered: make(chan recovery, 1)}
	mine := newOurs(b.redis, defaultLease)
	mine.batch = o.batch
	b.sides = [2]side{newAsynq(b.redis), mine}
	if wanted["recovery"] {
		b.startRecovery(o.bulkworker)
	}
	began, before := time.Now(), child.LoadAverage()
	var rows []table.Row
	for _, p := range parts {
		if wanted[p.name] {
			rows = append(rows, p.run(b)...)
		}
	}
	fsync := "no persistence"
	if o.aof {
		fsync = "appendfsync everysec"
	}
	fmt.Fprintf(r.Out, "\n%s/%s, %d cores, %s, load %s before and %s after %s; %d rounds of %d jobs taking turns, 100-byte payloads, redis-server with %s\n\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), began.UTC().Format(time.DateOnly), before, child.LoadAverage(), time.Since(began).Round(time.Second), o.rounds, o.jobs, fsync)
	rig.Check(table.Print(r.Out, []string{"asynq"}, "bulkworker", rows))
}

func startRedis(r *rig.Run, aof bool) *rig.Redis {
	if aof {
		return r.Redis("--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0")
	}
	return r.Redis()
}

// empty deletes all data.
func (b *bench) empty() { rig.Check(b.redis.Empty(b)) }

// stats returns what Redis has done so far.
func (b *bench) stats() rig.Stats { return rig.Must(b.redis.Stats(b)) }

// runUntil runs jobs on a side until done is closed, and returns what stops the side. It fails after a time.
func (b *bench) runUntil(done <-chan struct{}, limit time.Duration, s side, workers, tenants int, handle handler) (stop func()) {
	stop = rig.Must(s.start(workers, tenants, handle))
	select {
	case <-done:
		return stop
	case <-time.After(limit):
	case <-b.Done():
	}
	stop()
	rig.Check(b.Err())
	rig.Check(fmt.Errorf("%s: the jobs have not run after %s", s.name(), limit))
	return nil
}

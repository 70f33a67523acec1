// Command bulk measures the bulk worker beside asynq on the same machine in the same run, in turns on a private Redis, and
// prints the medians, their ratios and the bars. Only ratios of one run are comparable between machines.
//
// With --peers it also measures BullMQ, by the program in the directory bullmq on the same Redis, and River on a private PostgreSQL,
// where one tenant has all jobs: neither has tenants.
package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
	peers        string
	bullmq       string
	nodes        int
}

func command() *cobra.Command {
	var o options
	cmd := rig.Command("bulk", "Compare the bulk worker with asynq, BullMQ and River in one run", "", func(r *rig.Run) {
		rig.Require(o.rounds >= 1 && o.jobs >= 1000 && o.nodes >= 1, "--rounds %d, --jobs %d, --bullmq-processes %d: want at least 1, 1000, 1", o.rounds, o.jobs, o.nodes)
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
	f.StringVar(&o.peers, "peers", "asynq", "what is measured beside ours where one tenant has all jobs, separated by commas: asynq (in any case), bullmq, river")
	f.StringVar(&o.bullmq, "bullmq", "bench/bulk/bullmq", "the directory of the program that runs BullMQ")
	f.IntVar(&o.nodes, "bullmq-processes", 1, "Node processes that share BullMQ's jobs; on two cores, beside Redis, two are not faster than one")
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
	peers     []peer  // further ones
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
	b.peers = openPeers(r, b.redis, o)
	if wanted["recovery"] {
		b.startRecovery()
	}
	began, before := time.Now(), rig.LoadAverage()
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
	fmt.Fprintf(r.Out, "\n%s/%s, %d cores, %s, load %s before and %s after %s; %d rounds of %d jobs taking turns, 100-byte payloads, stores with %s\n\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), began.UTC().Format(time.DateOnly), before, rig.LoadAverage(), time.Since(began).Round(time.Second), o.rounds, o.jobs, fsync)
	names := []string{b.sides[0].name()}
	for _, p := range b.peers {
		names = append(names, p.name())
	}
	rig.Check(table.Print(r.Out, names, "bulkworker", rows))
}

func startRedis(r *rig.Run, aof bool) *rig.Redis {
	if aof {
		return r.Redis("--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0")
	}
	return r.Redis()
}

// empty deletes all data.
func (b *bench) empty() { rig.Check(b.redis.Empty(b)) }

// emptyOf deletes all data, and that of a side elsewhere.
func (b *bench) emptyOf(s side) {
	b.empty()
	if m, is := s.(meter); is {
		rig.Check(m.empty(b))
	}
}

// used returns the processor time that a side has used so far.
func (b *bench) used(s side) usage {
	if m, is := s.(meter); is {
		return rig.Must(m.used(b))
	}
	return rig.Must(shared(b, b.redis))
}

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

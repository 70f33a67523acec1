package admission_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
	"github.com/anteroom/anteroom/lua"
)

// storeFault is something that happens to the store, or on the way to it, while
// people join, poll and claim.
type storeFault struct {
	name  string
	args  []string // of the server
	begin func(*site)
	last  time.Duration
	end   func(*site)
	reply string // part of the error that the store must have replied
	down  bool   // nothing answers meanwhile: the rooms go down and answers are made offline
	loses bool   // what was written last, from about a second before begin until the store is down, is lost
}

func config(s *site, kv ...any) {
	s.t.Helper()
	do(s, append([]any{"CONFIG", "SET"}, kv...)...)
}

func do(s *site, command ...any) {
	s.t.Helper()
	if err := s.admin.Do(s.t.Context(), command...).Err(); err != nil {
		s.t.Fatalf("%v: %v", command, err)
	}
}

func heal(s *site) { s.eachProxy((*redistest.FaultProxy).Heal) }

// calls matches the commands that run a script.
func calls(script string) func([]byte) bool {
	sha := []byte(lua.MustLoad().Script(script).SHA)
	return func(command []byte) bool { return bytes.Contains(command, sha) }
}

func dropped(script string) storeFault {
	return storeFault{
		name:  "replies of " + script + " lost after it ran",
		begin: func(s *site) { s.eachProxy(func(p *redistest.FaultProxy) { p.Drop(calls(script)) }) },
		last:  600 * time.Millisecond,
		end: func(s *site) {
			s.await("a reply is lost", func() bool { return s.proxies[0].Dropped()+s.proxies[1].Dropped() > 0 })
			heal(s)
		},
	}
}

var storeFaults = []storeFault{
	{
		name:  "200 ms slow",
		begin: func(s *site) { s.eachProxy(func(p *redistest.FaultProxy) { p.Delay(200 * time.Millisecond) }) },
		last:  700 * time.Millisecond, end: heal, down: true,
	},
	{
		name:  "5 s slow",
		begin: func(s *site) { s.eachProxy(func(p *redistest.FaultProxy) { p.Delay(5 * time.Second) }) },
		last:  700 * time.Millisecond, end: heal, down: true,
	},
	dropped("room_enter"), dropped("room_seen"), dropped("room_claim"), dropped("room_advance"), dropped("room_heartbeat"),
	{
		name:  "every reply lost",
		begin: func(s *site) { s.eachProxy(func(p *redistest.FaultProxy) { p.Drop(nil) }) },
		last:  700 * time.Millisecond, end: heal, down: true,
	},
	{
		name: "connections reset again and again",
		begin: func(s *site) {
			for range 20 {
				s.eachProxy((*redistest.FaultProxy).Reset)
				wait(s.t, 20*time.Millisecond)
			}
		},
		end: func(*site) {},
	},
	{
		name:  "replies cut in the middle",
		begin: func(s *site) { s.eachProxy((*redistest.FaultProxy).Half) },
		last:  700 * time.Millisecond, end: heal, down: true,
	},
	{
		name:  "replies in slices of a few bytes",
		begin: func(s *site) { s.eachProxy(func(p *redistest.FaultProxy) { p.Slice(7) }) },
		last:  500 * time.Millisecond, end: heal,
	},
	{
		name:  "half-open",
		begin: func(s *site) { s.eachProxy((*redistest.FaultProxy).Hold) },
		last:  700 * time.Millisecond, end: heal, down: true,
	},
	{
		name:  "cut off",
		begin: func(s *site) { s.eachProxy((*redistest.FaultProxy).Cut) },
		last:  700 * time.Millisecond, end: heal, down: true,
	},
	{
		name:  "frozen",
		begin: func(s *site) { s.server.Stop() },
		last:  700 * time.Millisecond, end: func(s *site) { s.server.Cont() }, down: true,
	},
	{
		name:  "frozen for longer than room time runs on",
		begin: func(s *site) { s.server.Stop() },
		last:  6 * time.Second, end: func(s *site) { s.server.Cont() }, down: true,
	},
	{
		name:  "killed, restarted from the append-only file",
		args:  []string{"--appendonly", "yes", "--appendfsync", "always"},
		begin: func(s *site) { s.server.Kill() },
		last:  500 * time.Millisecond, end: func(s *site) { s.server.Restart() }, down: true,
	},
	{
		name:  "killed, restarted empty",
		begin: func(s *site) { s.server.Kill() },
		last:  500 * time.Millisecond, end: func(s *site) { s.server.Restart() }, down: true, loses: true,
	},
	{
		name: "killed, restarted with an older copy",
		args: []string{"--appendonly", "yes", "--appendfsync", "always"},
		begin: func(s *site) {
			dir := filepath.Dir(s.server.Socket())
			copyFiles(s.t, filepath.Join(dir, "appendonlydir"), filepath.Join(dir, "older"))
			wait(s.t, 300*time.Millisecond)
			s.server.Kill()
		},
		last: 300 * time.Millisecond,
		end: func(s *site) {
			dir := filepath.Dir(s.server.Socket())
			if err := os.RemoveAll(filepath.Join(dir, "appendonlydir")); err != nil {
				s.t.Fatal(err)
			}
			copyFiles(s.t, filepath.Join(dir, "older"), filepath.Join(dir, "appendonlydir"))
			s.server.Restart()
		},
		down: true, loses: true,
	},
	{
		name: "scripts flushed again and again",
		begin: func(s *site) {
			for range 20 {
				do(s, "SCRIPT", "FLUSH")
				wait(s.t, 20*time.Millisecond)
			}
		},
		end: func(*site) {},
	},
	{
		name: "loading for a second",
		args: []string{"--appendonly", "yes", "--appendfsync", "always", "--key-load-delay", "-4"},
		begin: func(s *site) {
			// It answers every thousand commands of the file.
			do(s, "EVAL", "for i = 1, 60000 do redis.call('SET', 'x' .. i, i) end return 1", 0)
			s.server.Kill()
			s.server.Restart() // returns when it has loaded
		},
		end: func(*site) {}, reply: "LOADING",
	},
	{
		name: "writes stopped because saving fails",
		begin: func(s *site) {
			file := filepath.Join(filepath.Dir(s.server.Socket()), "dump.rdb")
			if err := os.MkdirAll(filepath.Join(file, "in the way"), 0o700); err != nil {
				s.t.Fatal(err)
			}
			config(s, "save", "3600 1000000")
			saved(s, "err")
		},
		last: 500 * time.Millisecond,
		end: func(s *site) {
			if err := os.RemoveAll(filepath.Join(filepath.Dir(s.server.Socket()), "dump.rdb")); err != nil {
				s.t.Fatal(err)
			}
			saved(s, "ok")
		},
		reply: "MISCONF", down: true,
	},
	{
		name:  "one gateway of two cut off",
		begin: func(s *site) { s.proxies[1].Cut() },
		last:  time.Second, end: heal,
	},
	{
		name:  "a read-only replica, then master again",
		begin: func(s *site) { do(s, "REPLICAOF", "127.0.0.1", "1") },
		last:  600 * time.Millisecond, end: func(s *site) { do(s, "REPLICAOF", "NO", "ONE") }, reply: "READONLY", down: true,
	},
	{
		name:  "too few replicas",
		begin: func(s *site) { config(s, "min-replicas-to-write", 1) },
		last:  600 * time.Millisecond, end: func(s *site) { config(s, "min-replicas-to-write", 0) }, reply: "NOREPLICAS", down: true,
	},
	{
		name: "no more clients",
		begin: func(s *site) {
			config(s, "maxclients", 1)
			s.eachProxy((*redistest.FaultProxy).Reset)
		},
		last: 600 * time.Millisecond, end: func(s *site) { config(s, "maxclients", 1000) }, down: true,
	},
}

// saved lets the store save and waits for that status.
func saved(s *site, status string) {
	s.t.Helper()
	do(s, "BGSAVE")
	s.await("saving: "+status, func() bool {
		info := s.admin.Info(s.t.Context(), "persistence").Val()
		return strings.Contains(info, "rdb_bgsave_in_progress:0") && strings.Contains(info, "rdb_last_bgsave_status:"+status)
	})
}

func copyFiles(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// Each of these faults happens to the store of two gateways while visitors join, poll and claim. The limit and the order hold,
// a ticket makes one session, no visitor who polls loses the place, every call ends by its deadline, and the rooms are back
// soon after the store is.
func TestStoreFaults_KeepPromises(t *testing.T) {
	short.Skip(t, "waits for the clock")
	for _, f := range storeFaults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, faultPolicy, f.args...)
			a := s.send(40, 15*time.Millisecond)
			s.await("some are in", func() bool { return a.in.Load() >= 8 })
			lost := loss{from: s.clock() - 1_000_000}
			f.begin(s)
			if f.down {
				s.await("both breakers open", func() bool { return !s.cores[0].Up() && !s.cores[1].Up() })
				offline := a.offline.Load()
				s.await("answers without the store", func() bool { return a.offline.Load() > offline })
			}
			wait(t, f.last)
			lost.till = time.Now().UnixMicro() // Redis's clock, which does not answer now, is this machine's
			if !f.loses {
				lost = loss{}
			}
			in := a.in.Load()
			if f.down && in == int64(len(a.guests)) {
				t.Fatal("all guests were admitted before the store was back")
			}
			if !s.failedWith(f.reply) && f.reply != "" {
				t.Errorf("the store never replied %s", f.reply)
			}
			f.end(s)
			awaitWithin(t, patience, "the rooms are back", s.up)
			a.judgeAfter(faultPolicy, lost)
			t.Logf("%s: %d answers offline, %d claims unanswered, longest call %s", f.name, a.offline.Load(), a.refused.Load(), time.Duration(a.longest.Load()))
		})
	}
}

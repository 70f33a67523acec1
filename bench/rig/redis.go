package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/anteroom/anteroom/internal/redisurl"
	"github.com/anteroom/anteroom/lua"
)

// Redis is a private redis-server on a loopback port.
type Redis struct {
	*Child
	Addr   string
	Client lua.Client
}

// URL returns the address for the setting store.url.
func (s *Redis) URL() string { return "redis://" + s.Addr }

// Redis starts a redis-server that writes nothing to disk unless args say otherwise.
func (r *Run) Redis(args ...string) *Redis {
	addr := r.Port()
	host, port, _ := strings.Cut(addr, ":")
	dir := Must(os.MkdirTemp(r.Dir, "redis-"))
	process := r.Start("redis-server", Must(Find("redis-server")), addr, append([]string{"--bind", host, "--port", port, "--dir", dir,
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"}, args...)...)
	s := r.OpenRedis(addr)
	s.Child = process
	return s
}

// OpenRedis connects to a server that another process has started.
func (r *Run) OpenRedis(addr string) *Redis {
	c := Must(redisurl.Open("redis://"+addr, 30*time.Second))
	r.Cleanup(func() { _ = c.Close() })
	return &Redis{Addr: addr, Client: c}
}

// Empty deletes all data. Scripts stay loaded.
func (s *Redis) Empty(ctx context.Context) error { return s.Client.FlushAll(ctx).Err() }

// Stats counts the work of a server so far, and its memory.
type Stats struct {
	Memory   int64         // used_memory, bytes
	Clients  int64         // the part of it that connections take
	CPU      time.Duration // user and system
	Calls    int64         // of scripts
	Commands int64         // all, those within scripts included
	In, Out  int64         // bytes
	At       time.Time
}

// Since returns the difference from b.
func (a Stats) Since(b Stats) Stats {
	return Stats{a.Memory - b.Memory, a.Clients - b.Clients, a.CPU - b.CPU, a.Calls - b.Calls, a.Commands - b.Commands, a.In - b.In, a.Out - b.Out, b.At}
}

// Stats reads INFO.
func (s *Redis) Stats(ctx context.Context) (Stats, error) {
	info, err := s.Client.Info(ctx, "everything").Result()
	if err != nil {
		return Stats{}, err
	}
	return parseInfo(info)
}

// parseInfo reads the sections memory, cpu, stats and commandstats.
func parseInfo(info string) (Stats, error) {
	fields := map[string]string{}
	st := Stats{At: time.Now()}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
		if command, ok := strings.CutPrefix(name, "cmdstat_"); ok {
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, err := strconv.ParseInt(calls, 10, 64)
			if err != nil {
				return st, fmt.Errorf("INFO: %q: %w", line, err)
			}
			st.Commands += n
			if strings.HasPrefix(command, "eval") {
				st.Calls += n
			}
		}
	}
	user, sys := 0.0, 0.0
	for name, into := range map[string]any{"used_memory": &st.Memory, "mem_clients_normal": &st.Clients, "used_cpu_user": &user, "used_cpu_sys": &sys,
		"total_net_input_bytes": &st.In, "total_net_output_bytes": &st.Out} {
		if _, err := fmt.Sscan(fields[name], into); err != nil {
			return st, fmt.Errorf("INFO: %s %q: %w", name, fields[name], err)
		}
	}
	st.CPU = time.Duration((user + sys) * float64(time.Second))
	return st, nil
}

// logged is the number of calls that the slow log keeps while scripts are timed.
const logged = 50_000

// Time returns the durations of the calls of each script whose first key contains a word while f runs. It
// uses and empties the slow log.
func (s *Redis) Time(ctx context.Context, word string, f func() error) (map[string][]time.Duration, error) {
	set := lua.MustLoad()
	names := map[string]string{} // by SHA
	for _, name := range set.Names() {
		names[set.Script(name).SHA] = name
	}
	threshold := func(microseconds int) error {
		return s.Client.ConfigSet(ctx, "slowlog-log-slower-than", strconv.Itoa(microseconds)).Err()
	}
	if err := errors.Join(s.Client.ConfigSet(ctx, "slowlog-max-len", strconv.Itoa(logged)).Err(), threshold(0), s.Client.Do(ctx, "SLOWLOG", "RESET").Err()); err != nil {
		return nil, err
	}
	if err := errors.Join(f(), threshold(-1)); err != nil {
		return nil, err
	}
	calls, err := s.Client.SlowLogGet(ctx, logged).Result()
	if err != nil {
		return nil, err
	}
	all := map[string][]time.Duration{}
	for _, c := range calls {
		if len(c.Args) > 3 && strings.HasPrefix(strings.ToLower(c.Args[0]), "eval") && strings.Contains(c.Args[3], word) {
			if name := names[c.Args[1]]; name != "" {
				all[name] = append(all[name], c.Duration)
			}
		}
	}
	return all, nil
}

// Length returns the sum of the lengths of the string values whose keys match, in bytes.
func (s *Redis) Length(ctx context.Context, pattern string) (n int64, err error) {
	keys := s.Client.Scan(ctx, 0, pattern, 1000).Iterator()
	for keys.Next(ctx) {
		m, err := s.Client.StrLen(ctx, keys.Val()).Result()
		if err != nil {
			return n, err
		}
		n += m
	}
	return n, keys.Err()
}

// Package store starts a private redis-server for a measurement, and reads what it has done.
package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/bench/child"
	"github.com/anteroom/anteroom/internal/redisurl"
	"github.com/anteroom/anteroom/lua"
)

// Server is a redis-server on a loopback port of its own, that writes nothing to disk.
type Server struct {
	*child.Child
	URL    string
	Client redis.UniversalClient
	names  map[string]string // of scripts, by SHA
}

// Start returns when it accepts connections.
func Start(ctx context.Context, dir string) (*Server, error) {
	bin, err := child.Find("redis-server")
	if err != nil {
		return nil, err
	}
	set, err := lua.Load()
	if err != nil {
		return nil, err
	}
	addr, err := child.FreePort()
	if err != nil {
		return nil, err
	}
	host, port, _ := strings.Cut(addr, ":")
	p, err := child.Start("redis-server", bin, "--bind", host, "--port", port, "--dir", dir, "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction")
	if err != nil {
		return nil, err
	}
	s := &Server{Child: p, URL: "redis://" + addr, names: map[string]string{}}
	for _, name := range set.Names() {
		s.names[set.Script(name).SHA] = name
	}
	if err = p.Ready(ctx, addr); err == nil {
		s.Client, err = redisurl.Open(s.URL, 30*time.Second)
	}
	if err != nil {
		p.Stop()
		return nil, err
	}
	return s, nil
}

// Stop ends it.
func (s *Server) Stop() {
	_ = s.Client.Close()
	s.Child.Stop()
}

// Stats is what a server has done so far, and what it holds.
type Stats struct {
	Memory   int64         // used_memory, bytes
	Clients  int64         // of it, what its clients' connections take
	CPU      time.Duration // user and system
	Calls    int64         // of scripts, as its clients made them
	Commands int64         // all, those within scripts included
	In, Out  int64         // bytes
	At       time.Time
}

// Since is what was done from then on; Memory is the difference.
func (a Stats) Since(b Stats) Stats {
	return Stats{a.Memory - b.Memory, a.Clients - b.Clients, a.CPU - b.CPU, a.Calls - b.Calls, a.Commands - b.Commands, a.In - b.In, a.Out - b.Out, b.At}
}

// Stats asks INFO.
func (s *Server) Stats(ctx context.Context) (Stats, error) {
	text, err := s.Client.Info(ctx, "everything").Result()
	if err != nil {
		return Stats{}, err
	}
	st, err := parseInfo(text)
	st.At = time.Now()
	return st, err
}

// parseInfo reads the sections memory, cpu, stats and commandstats.
func parseInfo(text string) (Stats, error) {
	var st Stats
	seen := 0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		var err error
		switch {
		case name == "used_memory":
			st.Memory, err = strconv.ParseInt(value, 10, 64)
			seen++
		case name == "mem_clients_normal":
			st.Clients, err = strconv.ParseInt(value, 10, 64)
		case name == "used_cpu_user" || name == "used_cpu_sys":
			var x float64
			x, err = strconv.ParseFloat(value, 64)
			st.CPU += time.Duration(x * float64(time.Second))
			seen++
		case name == "total_net_input_bytes":
			st.In, err = strconv.ParseInt(value, 10, 64)
			seen++
		case name == "total_net_output_bytes":
			st.Out, err = strconv.ParseInt(value, 10, 64)
			seen++
		case strings.HasPrefix(name, "cmdstat_"):
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			var n int64
			n, err = strconv.ParseInt(calls, 10, 64)
			st.Commands += n
			if strings.HasPrefix(name, "cmdstat_eval") {
				st.Calls += n
			}
		}
		if err != nil {
			return st, fmt.Errorf("INFO: %q: %w", line, err)
		}
	}
	if seen < 5 {
		return st, errors.New("INFO lacks used_memory, used_cpu_user, used_cpu_sys or total_net_*_bytes")
	}
	return st, nil
}

// logged is how many calls are kept while scripts are timed.
const logged = 50_000

// Time notes how long every script call takes whose first key contains a word, by Redis's own clock, for as long as f
// runs. Its slow log is used for that, and emptied.
func (s *Server) Time(ctx context.Context, word string, f func() error) (map[string][]time.Duration, error) {
	for _, set := range [][2]string{{"slowlog-max-len", strconv.Itoa(logged)}, {"slowlog-log-slower-than", "0"}} {
		if err := s.Client.ConfigSet(ctx, set[0], set[1]).Err(); err != nil {
			return nil, err
		}
	}
	if err := s.Client.Do(ctx, "SLOWLOG", "RESET").Err(); err != nil {
		return nil, err
	}
	err := f()
	if off := s.Client.ConfigSet(ctx, "slowlog-log-slower-than", "-1").Err(); off != nil {
		err = errors.Join(err, off)
	}
	if err != nil {
		return nil, err
	}
	calls, err := s.Client.SlowLogGet(ctx, logged).Result()
	if err != nil {
		return nil, err
	}
	all := map[string][]time.Duration{}
	for _, c := range calls {
		if len(c.Args) > 3 && strings.HasPrefix(strings.ToLower(c.Args[0]), "eval") && strings.Contains(c.Args[3], word) {
			if name := s.names[c.Args[1]]; name != "" {
				all[name] = append(all[name], c.Duration)
			}
		}
	}
	for _, d := range all {
		slices.Sort(d)
	}
	return all, nil
}

// Length is of the string values whose keys match, in bytes, all together.
func (s *Server) Length(ctx context.Context, pattern string) (n int64, err error) {
	keys := s.Client.Scan(ctx, 0, pattern, 1000).Iterator()
	for keys.Next(ctx) {
		if kind, err := s.Client.Type(ctx, keys.Val()).Result(); err != nil || kind != "string" {
			return n, errors.Join(err, fmt.Errorf("%s is a %s", keys.Val(), kind))
		}
		m, err := s.Client.StrLen(ctx, keys.Val()).Result()
		if err != nil {
			return n, err
		}
		n += m
	}
	return n, keys.Err()
}

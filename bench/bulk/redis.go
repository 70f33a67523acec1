package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/bench/child"
	"github.com/anteroom/anteroom/internal/redisurl"
)

// redisServer is a private redis-server, the same for both sides.
type redisServer struct {
	process *child.Child
	addr    string
	client  redis.UniversalClient
}

func startRedis(ctx context.Context, dir string, aof bool) (*redisServer, error) {
	bin, err := child.Find("redis-server")
	if err != nil {
		return nil, err
	}
	addr, err := child.FreePort()
	if err != nil {
		return nil, err
	}
	dir, err = os.MkdirTemp(dir, "redis-")
	if err != nil {
		return nil, err
	}
	host, port, _ := strings.Cut(addr, ":")
	appendonly := "no"
	if aof {
		appendonly = "yes"
	}
	p, err := child.Start("redis-server", bin, "--bind", host, "--port", port, "--dir", dir, "--save", "", "--appendonly", appendonly,
		"--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0")
	if err != nil {
		return nil, err
	}
	if err := p.Ready(ctx, addr); err != nil {
		p.Stop()
		return nil, err
	}
	s, err := openRedis(addr)
	if err != nil {
		p.Stop()
		return nil, err
	}
	s.process = p
	return s, nil
}

// openRedis connects to a server that another process has started.
func openRedis(addr string) (*redisServer, error) {
	client, err := redisurl.Open("redis://"+addr, 30*time.Second)
	return &redisServer{addr: addr, client: client}, err
}

func (s *redisServer) url() string { return "redis://" + s.addr }

func (s *redisServer) stop() {
	_ = s.client.Close()
	s.process.Stop()
}

// empty forgets all data; scripts stay.
func (s *redisServer) empty(ctx context.Context) error {
	return s.client.FlushAll(ctx).Err()
}

// figure reads one field of INFO.
func (s *redisServer) figure(ctx context.Context, section, name string) (float64, error) {
	info, err := s.client.Info(ctx, section).Result()
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(info, "\n"+name+":")
	if !ok {
		return 0, fmt.Errorf("INFO %s has no %s", section, name)
	}
	value, _, _ := strings.Cut(rest, "\r")
	return strconv.ParseFloat(value, 64)
}

// cpu is the processor time that the server has used.
func (s *redisServer) cpu(ctx context.Context) (time.Duration, error) {
	var sum float64
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		x, err := s.figure(ctx, "cpu", name)
		if err != nil {
			return 0, err
		}
		sum += x
	}
	return time.Duration(sum * float64(time.Second)), nil
}

// lengthOf is the answer to an LLEN.
func lengthOf(c redis.Cmder) int64 {
	n, _ := c.(*redis.IntCmd)
	return n.Val()
}

package storeopen

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/freeport"
	"github.com/anteroom/anteroom/internal/redistest"
)

// unwanted fails its test when the client library logs.
type unwanted struct{ t *testing.T }

func (u unwanted) Printf(_ context.Context, format string, v ...any) {
	u.t.Errorf("besides the error there is a line: "+format, v...)
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// Every error of a store that cannot be reached or refuses the program has the way out, and is the only line.
func TestCheck_NamesTheRemedy(t *testing.T) {
	s := redistest.Server(t)
	if err := s.Client().ConfigSet(t.Context(), "requirepass", "right").Err(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closing := l.Addr().String()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close() // as a server with TLS does with a plain command
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	refusing := freeport.Address(t)
	t.Cleanup(func() { redis.SetLogger(quiet{}) })
	for _, c := range []struct{ url, want string }{
		{"unix://" + s.Socket(), "put the password before the host"},
		{"unix://:wrong@" + s.Socket(), "correct user and password in the URL"},
		{"unix://:right@" + s.Socket() + "?db=99", "number of a database that the server has"},
		{"unix:///nowhere/redis.sock", "start the server, or correct its address"},
		{"redis://" + refusing, "start the server, or correct its address"},
		{"redis://" + closing, "use rediss://"},
		{"rediss://" + closing, "has no TLS on this port"},
	} {
		redis.SetLogger(unwanted{t})
		err := Check(t.Context(), config.Store{URL: c.url})
		if err == nil || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v, without %q", c.url, err, c.want)
		}
	}
}

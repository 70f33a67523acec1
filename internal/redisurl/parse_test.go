package redisurl

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse_ReadsEachForm(t *testing.T) {
	for _, row := range []struct {
		url  string
		want target
	}{
		{"redis://h", target{addrs: []string{"h:6379"}}},
		{"redis://h/", target{addrs: []string{"h:6379"}}},
		{"redis://10.0.0.1:7000/3", target{addrs: []string{"10.0.0.1:7000"}, db: 3}},
		{"redis://h?db=3", target{addrs: []string{"h:6379"}, db: 3}},
		{"redis://u:p@h", target{addrs: []string{"h:6379"}, user: "u", pass: "p"}},
		{"redis://:p@h", target{addrs: []string{"h:6379"}, pass: "p"}},
		{"redis://u:p:q+r@h", target{addrs: []string{"h:6379"}, user: "u", pass: "p:q+r"}},
		{"redis://u%40x:%2F%3F%23%25@h", target{addrs: []string{"h:6379"}, user: "u@x", pass: "/?#%"}},
		{"redis://u:p@q@h", target{addrs: []string{"h:6379"}, user: "u", pass: "p@q"}},
		{"redis://[::1]:7000", target{addrs: []string{"[::1]:7000"}}},
		{"redis://[2001:db8::1]/1", target{addrs: []string{"[2001:db8::1]:6379"}, db: 1}},
		{"rediss://h:6380?ca_file=/ca.pem&server_name=r.example", target{addrs: []string{"h:6380"}, tls: true, caFile: "/ca.pem", serverName: "r.example"}},
		{"unix:///run/redis.sock", target{kind: socket, addrs: []string{"/run/redis.sock"}}},
		{"unix://u:p@/run/a%20b.sock?db=2", target{kind: socket, addrs: []string{"/run/a b.sock"}, user: "u", pass: "p", db: 2}},
		{"unix:///run/a@b", target{kind: socket, addrs: []string{"/run/a@b"}}},
		{"redis-sentinel://h1,h2:1,[::2]/mymaster", target{kind: sentinel, addrs: []string{"h1:26379", "h2:1", "[::2]:26379"}, master: "mymaster"}},
		{"redis-sentinel://u:p@h1/m/4?tls=1&sentinel_password=s%26t&sentinel_user=su", target{kind: sentinel, addrs: []string{"h1:26379"}, user: "u", pass: "p",
			master: "m", db: 4, tls: true, sentinelPass: "s&t", sentinelUser: "su"}},
		{"redis-cluster://h1,h2:7001", target{kind: cluster, addrs: []string{"h1:6379", "h2:7001"}}},
		{"redis-cluster://:p@h1/?tls=true&cert_file=c&key_file=k", target{kind: cluster, addrs: []string{"h1:6379"}, pass: "p", tls: true, certFile: "c", keyFile: "k"}},
	} {
		got, err := parse(row.url)
		if err != nil || !reflect.DeepEqual(got, row.want) {
			t.Errorf("%s\n got %+v, %v\nwant %+v", row.url, got, err, row.want)
		}
	}
}

func TestOpen_RefusesBadURLs(t *testing.T) {
	for _, row := range []struct{ url, want string }{
		{"", "is not a URL; it starts with redis://"},
		{"localhost:6379", "is not a URL"},
		{"http://h", "unknown scheme"},
		{"REDIS://h", "unknown scheme"},
		{"redis://", "names no host"},
		{"redis://:6379", "names no host"},
		{"redis://h:", "bad port"},
		{"redis://h:0", "bad port"},
		{"redis://h:65536", "bad port"},
		{"redis://h:-1", "bad port"},
		{"redis://::1", "several colons"},
		{"redis://[::1", "without its ]"},
		{"redis://[h]", "other than an IPv6 address"},
		{"redis://[::1]x", "behind ]"},
		{"redis://h1,h2", "names 2 hosts"},
		{"redis://h%2F", "in a host name"},
		{"redis://h(1)x", "in a host name"},
		{"redis://h/x", "database that is not a number"},
		{"redis://h/-1", "database that is not a number"},
		{"redis://h/1/2", "too many parts"},
		{"redis://h/1?db=2", "names the database twice"},
		{"redis://h?db=1&db=2", "parameter db twice"},
		{"redis://h?timeout=1", "known are db"},
		{"redis://h?ca_file=x", "known are db"},
		{"redis://h#x", "%23"},
		{"redis://h h", "blank"},
		{"redis://h\n", "control"},
		{"redis://u@h", "user without a password"},
		{"redis://u:%zz@h", "bad percent-encoding in the password"},
		{"redis://u:hunter2/x@h", "write / as %2F"},
		{"redis://u:hunter2?x@h", "bad port"},
		{"rediss://h?cert_file=c", "only one of cert_file and key_file"},
		{"rediss://h?ca_file=/does/not/exist", "ca_file: open /does/not/exist"},
		{"unix://run/redis.sock", "unix:///absolute/path"},
		{"unix://", "names no socket"},
		{"unix:///" + strings.Repeat("x", 200), "201 bytes"},
		{"redis-sentinel://h1,h2", "does not name the master"},
		{"redis-sentinel://h1,h1/m", "names the host h1:26379 twice"},
		{"redis-sentinel://h1,/m", "empty one between commas"},
		{"redis-sentinel://h1/m?tls=perhaps", "neither 1 nor 0"},
		{"redis-sentinel://h1/m?server_name=x", "without tls=1"},
		{"redis-cluster://h1/1", "a cluster has only one"},
	} {
		c, err := Open(row.url, 1e9)
		if err == nil {
			_ = c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), row.want) || !strings.HasPrefix(err.Error(), "store.url "+Mask(row.url)+": ") {
			t.Errorf("%q: got %v, want %q", row.url, err, row.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error shows the password: %v", row.url, err)
		}
	}
	if _, err := Open("redis://h", 0); err == nil || !strings.Contains(err.Error(), "store.timeout 0s") {
		t.Errorf("no timeout: %v", err)
	}
}

func TestMask_HidesPasswords(t *testing.T) {
	for _, row := range []struct{ url, want string }{
		{"redis://h:6379/1", "redis://h:6379/1"},
		{"redis://u:secret@h", "redis://u:***@h"},
		{"redis://:secret@h", "redis://:***@h"},
		{"redis://secret@h", "redis://***@h"},
		{"redis://u:se/cr?et@x@h/1", "redis://u:***@h/1"},
		{"redis-sentinel://u:secret@h1,h2/m?sentinel_password=secret&tls=1", "redis-sentinel://u:***@h1,h2/m?sentinel_password=***&tls=1"},
		{"redis-sentinel://h1/m?sentinel_pasword=secret", "redis-sentinel://h1/m?sentinel_pasword=***"},
		{"u:secret@h", "u:***@h"},
		{"secret@h", "***@h"},
		{"secret@u://x", "***@u://x"},
		{"", ""},
	} {
		if got := Mask(row.url); got != row.want {
			t.Errorf("%s: got %s, want %s", row.url, got, row.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, u := range []string{"redis://u:p@h:1/2", "rediss://[::1]?ca_file=x", "unix:///a?db=1", "redis-sentinel://h1,h2:3/m/1?tls=1&sentinel_password=x",
		"redis-cluster://h1,h2", "redis://u:%zz@h", "redis://@", "://", "redis://h?;", "redis://u:p@h@[:"} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		masked := Mask(raw)
		got, err := parse(raw)
		if err != nil {
			return
		}
		if len(got.addrs) == 0 || got.db < 0 || (got.kind == sentinel) != (got.master != "") {
			t.Fatalf("%q is read as %+v", raw, got)
		}
		for _, secret := range []string{got.pass, got.sentinelPass} {
			if len(secret) > 12 && strings.Contains(masked, secret) && strings.Count(raw, secret) == 1 {
				t.Fatalf("%q is masked as %q", raw, masked)
			}
		}
	})
}

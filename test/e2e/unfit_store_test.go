package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/internal/redistest"
)

// serve exits with the same error that check-config --store reports of a store or a directory.
func TestUnfitStore_IsRefused(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, store, says string
		checkedOnly       bool // the store may become usable, so serve waits
	}{
		{name: "the data of another version", store: `url: "` + withLayout(t, 99) + `"`, says: "data layout 99"},
		{name: "a replica", store: `url: "` + replicaOf(t) + `"`, says: "READONLY", checkedOnly: true},
		{name: "a user that may run no scripts", store: `url: "` + withoutScripts(t) + `"`, says: "NOPERM", checkedOnly: true},
		{name: "a directory that is a file", store: "dir: " + plainFile(t), says: "store.dir"},
		{name: "a key that cannot be read", store: "dir: " + damagedKey(t), says: "keys.json"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(tempDir(t), "gateway.yaml")
			write(t, path, "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\norigins: [{id: shop, servers: [\"http://127.0.0.1:9\"]}]\nrooms: [{id: sale}]\n"+
				"tokens: {keys: [{id: k, secret: "+signingSecret+"}]}\nstore: {"+row.store+"}\n")
			if strings.HasPrefix(row.store, "dir") {
				write(t, path, "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\norigins: [{id: shop, servers: [\"http://127.0.0.1:9\"]}]\nrooms: [{id: sale}]\nstore: {"+row.store+"}\n")
			}
			if code, _, text := command(t, nil, "check-config", "--store", "--config", path); code != 2 || !strings.Contains(text, row.says) {
				t.Errorf("check-config --store: %d %s", code, text)
			}
			if row.checkedOnly {
				return
			}
			if code, out, text := command(t, nil, "serve", "--config", path); code < 1 || !strings.Contains(out+text, row.says) {
				t.Errorf("serve: %d %s", code, text)
			}
		})
	}
}

// A store that is away at the start and unusable later ends the gateway, like an unusable store at the start.
func TestUnfitStore_IsRefusedWhenItIsBack(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, says string
		back       func(*redistest.PrivateServer)
	}{
		{"it evicts", "noeviction", func(s *redistest.PrivateServer) { s.RestartWith("--maxmemory-policy", "allkeys-lru") }},
		{"another version's data", "data layout 99", func(s *redistest.PrivateServer) { s.Restart() }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			store := redistest.Server(t, "--appendonly", "yes")
			if err := store.Client().HSet(t.Context(), "wr:layout", "version", 99, "since", 1).Err(); err != nil {
				t.Fatal(err)
			}
			store.Kill()
			g := start(t, setup{origin: "http://127.0.0.1:9", rooms: []string{"{id: sale, paths: [/]}"}, alone: true}.withRedis(store.URL()))
			row.back(store)
			g.wait()
			if !strings.Contains(g.text(), row.says) {
				t.Errorf("the gateway ended and said\n%s", g.text())
			}
		})
	}
}

func withLayout(t *testing.T, version int) string {
	s := redistest.Server(t)
	if err := s.Client().HSet(t.Context(), "wr:layout", "version", version, "since", 1).Err(); err != nil {
		t.Fatal(err)
	}
	return s.URL()
}

func replicaOf(t *testing.T) string {
	master, s := redistest.Server(t), redistest.Server(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	if err := s.Client().SlaveOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	return s.URL()
}

func withoutScripts(t *testing.T) string {
	s := redistest.Server(t)
	if err := s.Client().Do(t.Context(), "ACL", "SETUSER", "reader", "on", ">reader-password", "~*", "+@all", "-@scripting").Err(); err != nil {
		t.Fatal(err)
	}
	return "redis://reader:reader-password@" + s.Addr()
}

func plainFile(t *testing.T) string {
	path := filepath.Join(tempDir(t), "file")
	write(t, path, "")
	return path
}

func damagedKey(t *testing.T) string {
	dir := tempDir(t)
	write(t, filepath.Join(dir, "keys.json"), "{")
	return dir
}

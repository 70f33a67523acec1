package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shop is the smallest valid file.
const shop = "origins: [{id: shop, servers: [\"http://127.0.0.1:9000\"]}]\n"

// write puts text into a file of the test's own.
func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func loadText(t testing.TB, text string) (*Config, []string) {
	t.Helper()
	return load(t, Options{File: write(t, "gateway.yaml", text)})
}

// load returns the problems as lines.
func load(t testing.TB, o Options) (*Config, []string) {
	t.Helper()
	cfg, err := Load(o)
	if err == nil {
		return cfg, nil
	}
	var problems *Problems
	if !errors.As(err, &problems) {
		t.Fatalf("the error is a %T, not *Problems: %v", err, err)
	}
	if cfg != nil {
		t.Fatal("a configuration came with an error")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(problems.List) {
		t.Fatalf("%d problems on %d lines:\n%s", len(problems.List), len(lines), err)
	}
	return nil, lines
}

// wantProblems compares the beginnings of the problems, in any order.
func wantProblems(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("got %d problems, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
		return
	}
next:
	for _, w := range want {
		for _, g := range got {
			if strings.HasPrefix(g, w) {
				continue next
			}
		}
		t.Errorf("no problem begins with %q in:\n%s", w, strings.Join(got, "\n"))
	}
}

func TestLoad_SetsDefaults(t *testing.T) {
	cfg, problems := loadText(t, shop+"rooms: [{id: sale}]\n")
	wantProblems(t, problems)
	if cfg.Listen != ":8080" || cfg.Limits.Header != 16<<10 || cfg.ShutdownTimeout != 30*time.Second || len(cfg.TrustedProxies) != 2 {
		t.Errorf("top level: %+v", cfg)
	}
	origin, room := cfg.Origins[0], &cfg.Rooms[0]
	if origin.MaxConns != 4096 || !origin.PreserveHost || origin.Timeout != 30*time.Second {
		t.Errorf("origin: %+v", origin)
	}
	if room.Admission.Rate != 10_000 || room.Burst() != 10_000 || room.Weight != 1000 || !room.Enabled || room.Hosts[0] != "*" || room.Paths[0] != "/" {
		t.Errorf("room: %+v", room)
	}
	if cfg.OriginOf(room).ID != "shop" || cfg.OnStoreErrorOf(room) != "wait" {
		t.Errorf("origin %v, on_store_error %q", cfg.OriginOf(room), cfg.OnStoreErrorOf(room))
	}
}

func TestLoad_BurstDefaultsToTheRate(t *testing.T) {
	for _, row := range []struct {
		admission string
		want      Rate
	}{
		{"{rate: 10}", 10_000},
		{"{rate: 0.5}", 1_000},
		{"{rate: 0}", 1_000},
		{"{rate: 2.5}", 2_500},
		{"{rate: 10, burst: 3}", 3_000},
		{"{rate: 10, burst: null}", 10_000},
		{"{rate: 0, burst: 0}", 0},
	} {
		cfg, problems := loadText(t, shop+"rooms: [{id: sale, admission: "+row.admission+"}]\n")
		wantProblems(t, problems)
		if got := cfg.Rooms[0].Burst(); got != row.want {
			t.Errorf("%s: got %s, want %s", row.admission, got, row.want)
		}
	}
}

func TestLoad_FlagsOverrideEnvironmentAndFile(t *testing.T) {
	file := write(t, "gateway.yaml", shop+"listen: \":1001\"\nadmin: {listen: \"127.0.0.1:1002\"}\nlog: {level: warn, format: text}\n")
	for _, row := range []struct {
		name    string
		options Options
		want    string
	}{
		{"default", Options{Flags: map[string]any{"origin": "http://127.0.0.1:9000"}}, ":8080 127.0.0.1:9090 info json"},
		{"file over default", Options{File: file}, ":1001 127.0.0.1:1002 warn text"},
		{"environment over file", Options{File: file, Environ: []string{"ANTEROOM_LISTEN=:2001", "ANTEROOM_LOG__LEVEL=debug"}},
			":2001 127.0.0.1:1002 debug text"},
		{"flag over environment", Options{File: file, Environ: []string{"ANTEROOM_LISTEN=:2001", "ANTEROOM_ADMIN__LISTEN=127.0.0.1:2002"},
			Flags: map[string]any{"listen": ":3001"}}, ":3001 127.0.0.1:2002 warn text"},
	} {
		t.Run(row.name, func(t *testing.T) {
			cfg, problems := load(t, row.options)
			wantProblems(t, problems)
			if got := strings.Join([]string{cfg.Listen, cfg.Admin.Listen, cfg.Log.Level, cfg.Log.Format}, " "); got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
		})
	}
}

func TestLoad_RefusesWrongFiles(t *testing.T) {
	for _, row := range []struct {
		name, text string
		want       []string
	}{
		{"unknown key", "lissten: x", []string{"lissten: unknown key; did you mean listen?"}},
		{"unknown key in a section", "store: {ulr: x}", []string{"store.ulr: unknown key; did you mean url?"}},
		{"unknown key in a list", "rooms: [{id: a, admision: {}}]", []string{"rooms[0].admision: unknown key; did you mean admission?"}},
		{"key at the wrong level", "rooms: [{id: a, rate: 5}]", []string{"rooms[0].rate: unknown key here; did you mean admission."}},
		{"key like nothing", "zzzzzzzzz: 1", []string{"zzzzzzzzz: unknown key; here are known: listen "}},
		{"path as a key", "store.url: x", []string{"store.url: unknown key"}},
		{"key in other case", "Listen: x", []string{"Listen: unknown key; did you mean listen?"}},
		{"duplicate key", "listen: ':1'\nlisten: ':2'", []string{"listen: given twice, in lines 2 and 3"}},
		{"duplicate key below", "log: {level: info, level: warn}", []string{"log.level: given twice"}},
		{"text for a rate", "rooms: [{id: a, admission: {rate: x}}]", []string{`rooms[0].admission.rate: "x": use a number`}},
		{"quoted rate", `rooms: [{id: a, admission: {rate: "10"}}]`, []string{`rooms[0].admission.rate: "10": use a number without quotes`}},
		{"lost fraction of a rate", "rooms: [{id: a, admission: {rate: 0.0005}}]", []string{"rooms[0].admission.rate: 0.0005: has more than three decimal places"}},
		{"lost fraction of an integer", "rooms: [{id: a, admission: {max_active: 1.5}}]", []string{"rooms[0].admission.max_active: 1.5: use a whole number"}},
		{"negative rate", "rooms: [{id: a, admission: {rate: -1}}]", []string{"rooms[0].admission.rate: -1: is negative"}},
		{"negative integer", "rooms: [{id: a, admission: {max_active: -1}}]", []string{"rooms[0].admission.max_active: -1 is too small; use at least 0"}},
		{"infinite rate", "rooms: [{id: a, admission: {rate: .inf}}]", []string{`rooms[0].admission.rate: ".inf": use a plain decimal`}},
		{"hexadecimal", "limits: {headers: 0x10}", []string{`limits.headers: "0x10": use a plain decimal`}},
		{"octal", "limits: {headers: 0100}", []string{`limits.headers: "0100": use a plain decimal`}},
		{"exponent", "limits: {headers: 1e2}", []string{`limits.headers: "1e2": use a plain decimal`}},
		{"integer beyond its type", "limits: {headers: 99999999999999999999}", []string{"limits.headers: 99999999999999999999: is too large"}},
		{"number for a duration", "shutdown_timeout: 30", []string{"shutdown_timeout: 30: use a duration"}},
		{"duration without unit", "shutdown_timeout: '30'", []string{`shutdown_timeout: "30": use a duration`}},
		{"negative duration", "shutdown_timeout: -30s", []string{`shutdown_timeout: "-30s": is negative`}},
		{"yes for a boolean", "log: {access: yes}", []string{`log.access: "yes": use true or false`}},
		{"quoted boolean", "log: {access: 'true'}", []string{`log.access: "true": use true or false`}},
		{"number for a boolean", "log: {access: 1}", []string{"log.access: 1: use true or false"}},
		{"True for a boolean", "log: {access: True}", []string{`log.access: "True": use true or false`}},
		{"number for text", "store: {prefix: 12}", []string{"store.prefix: 12: is not text; put it in quotes"}},
		{"unit that is none", "limits: {header: 16KB}", []string{`limits.header: "16KB": use a whole number of bytes`}},
		{"no value", "listen:", []string{"listen: has no value"}},
		{"section for a value", "listen: {a: b}", []string{"listen: is a list or a section; use text"}},
		{"value for a section", "store: x", []string{"store: is a section"}},
		{"list for a section", "store: [x]", []string{"store: is a section"}},
		{"value for a list", "trusted_proxies: 10.0.0.0/8", []string{`trusted_proxies: "10.0.0.0/8": is not a list`}},
		{"section for a list of sections", "rooms: {id: a}", []string{"rooms: is a list of sections"}},
		{"text in a list of sections", "rooms: [a]", []string{"rooms[0]: is not a section", "rooms[0].id: is missing"}},
		{"nothing in a list", "trusted_proxies: [null]", []string{"trusted_proxies[0]: has no value"}},
		{"address without length", "trusted_proxies: [10.0.0.1]", []string{`trusted_proxies[0]: "10.0.0.1": has no length; use 10.0.0.1/32`}},
		{"bits beyond the length", "trusted_proxies: [10.0.0.1/8]", []string{`trusted_proxies[0]: "10.0.0.1/8": has bits beyond its length; use 10.0.0.0/8`}},
		{"IPv4 in IPv6", "trusted_proxies: ['::ffff:10.0.0.0/104']", []string{`trusted_proxies[0]: "::ffff:10.0.0.0/104": is IPv4 written as IPv6`}},
		{"secret as a number", "admin: {token: 12345678}", []string{"admin.token: is not text; put it in quotes"}},
		{"tag", "listen: !!binary aGk=", []string{"listen: \"aGk=\": is not text"}},
		{"own tag", "limits: {headers: !x 5}", []string{"limits.headers: \"5\": the YAML tag !x has no meaning"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, problems := loadText(t, shop+row.text+"\n")
			wantProblems(t, problems, row.want...)
		})
	}
}

func TestLoad_NamesABrokenFile(t *testing.T) {
	for _, row := range []struct {
		name, text, want string
	}{
		{"syntax", "rooms: [", "not YAML: line 1"},
		{"tab", "store:\n\turl: x", "not YAML: line 2"},
		{"two documents", shop + "---\nlisten: ':1'\n", "the file has more than one YAML document"},
		{"a list", "- a\n- b\n", "the file is not a list of settings"},
		{"one word", "hello\n", "the file is not a list of settings"},
		{"a loop", "origins: &a [*a]\n", "the file is nested or aliased too deeply"},
		{"many laughs", "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
			"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nrooms: [*e,*e,*e,*e,*e,*e,*e]\n", "the file is nested or aliased too deeply"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, problems := loadText(t, row.text)
			if !strings.Contains(strings.Join(problems, "\n"), row.want) {
				t.Errorf("want %q in:\n%s", row.want, strings.Join(problems, "\n"))
			}
		})
	}
	_, problems := load(t, Options{File: filepath.Join(t.TempDir(), "none.yaml")})
	if len(problems) != 1 || !strings.Contains(problems[0], "none.yaml: no such file") {
		t.Errorf("a file that is not there: %q", problems)
	}
}

func TestLoad_AnEmptyFileIsTheDefaults(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "store:\n  # url: x\n"} {
		_, problems := loadText(t, text)
		wantProblems(t, problems, "origins: there is no site to protect; give one in the file, or try: gateway --origin http://127.0.0.1:9000 --rate 10")
	}
}

func TestLoad_FollowsAnchorsAndMerges(t *testing.T) {
	cfg, problems := loadText(t, shop+`
rooms:
  - &sale
    id: sale
    paths: ["/sale"]
    admission: &slow {rate: 1.5, max_active: 7}
  - <<: *sale
    id: vip
    paths: ["/vip"]
    admission: {<<: *slow, rate: 4}
`)
	wantProblems(t, problems)
	vip := cfg.Rooms[1]
	if vip.ID != "vip" || vip.Paths[0] != "/vip" || vip.Admission.Rate != 4000 || vip.Admission.MaxActive != 7 {
		t.Errorf("merged: %+v", vip)
	}
}

func TestLoad_ReportsEveryProblemAtOnce(t *testing.T) {
	file := write(t, "gateway.yaml", `
listen: "8080"
nonsense: true
origins: [{id: shop, servers: ["127.0.0.1:9000"]}]
rooms:
  - {id: Sale, admission: {rate: "x"}}
  - {id: vip, paths: ["vip"], queue: {absence: 1m}}
`)
	_, problems := load(t, Options{
		File:    file,
		Environ: []string{"ANTEROOM_STORE__TIMEOUT=5", "ANTEROOM_ROOMS__0__ID=x"},
		Flags:   map[string]any{"admin.listen": "9090", "rate": "5"},
	})
	wantProblems(t, problems,
		`listen: "8080" is not a listen address`,
		"nonsense: unknown key",
		`origins[0].servers[0]: "127.0.0.1:9000" is not a server`,
		`rooms[0].id: "Sale" is not an id`,
		`rooms[0].admission.rate: "x": use a number`,
		`rooms[1].paths[0]: "vip" is not a path`,
		"rooms[1].queue.absence: 1m is too small; use at least 3m",
		`store.timeout: "5": use a duration`,
		"ANTEROOM_ROOMS__0__ID: the environment sets single values and comma lists only; write rooms in the file",
		`admin.listen: "9090" is not a listen address`,
		"--rate: the file has rooms",
	)
}

func TestLoad_ReportsABadValueInALowerLayer(t *testing.T) {
	_, problems := load(t, Options{File: write(t, "gateway.yaml", shop+"shutdown_timeout: 5\n"), Environ: []string{"ANTEROOM_SHUTDOWN_TIMEOUT=5s"}})
	wantProblems(t, problems, "shutdown_timeout: 5: use a duration")
}

func TestLoad_ShorthandFlagsMakeARoom(t *testing.T) {
	cfg, problems := load(t, Options{Flags: map[string]any{"origin": "http://127.0.0.1:9000", "rate": "2.5", "burst": "4", "max_active": "100"}})
	wantProblems(t, problems)
	if len(cfg.Origins) != 1 || cfg.Origins[0].ID != "default" || cfg.Origins[0].Servers[0] != "http://127.0.0.1:9000" || cfg.Origins[0].MaxConns != 4096 {
		t.Errorf("origins: %+v", cfg.Origins)
	}
	if len(cfg.Rooms) != 1 {
		t.Fatalf("rooms: %+v", cfg.Rooms)
	}
	room := &cfg.Rooms[0]
	if room.ID != "default" || room.Paths[0] != "/" || room.Admission.Rate != 2500 || room.Burst() != 4000 || room.Admission.MaxActive != 100 || cfg.OriginOf(room) != &cfg.Origins[0] {
		t.Errorf("room: %+v", room)
	}

	rooms := write(t, "rooms.yaml", shop+"rooms: [{id: sale}]\n")
	noRooms := write(t, "shop.yaml", shop)
	for _, row := range []struct {
		name    string
		options Options
		want    []string
	}{
		{"origin alone", Options{Flags: map[string]any{"origin": "http://127.0.0.1:9000"}}, nil},
		{"rate over the file's origin", Options{File: noRooms, Flags: map[string]any{"rate": "5"}}, nil},
		{"typed values", Options{File: noRooms, Flags: map[string]any{"rate": 2.5, "max_active": 7}}, nil},
		{"without an origin", Options{Flags: map[string]any{"rate": "5"}}, []string{"origins: there is no site"}},
		{"with rooms in the file", Options{File: rooms, Flags: map[string]any{"burst": "5", "max_active": "5", "origin": "http://127.0.0.1:1", "rate": "5"}},
			[]string{"--burst: the file has rooms", "--max-active: the file has rooms", "--origin: the file has rooms", "--rate: the file has rooms"}},
		{"with origins in the file", Options{File: noRooms, Flags: map[string]any{"origin": "http://127.0.0.1:1"}}, []string{"--origin: the file has origins"}},
		{"bad rate", Options{File: noRooms, Flags: map[string]any{"rate": "x"}}, []string{`--rate: "x": use a decimal`}},
		{"bad origin", Options{Flags: map[string]any{"origin": "127.0.0.1:9000"}}, []string{`--origin: "127.0.0.1:9000" is not a server`}},
		{"burst below one", Options{File: noRooms, Flags: map[string]any{"burst": "0.5"}}, []string{"--burst: 0.5 never admits"}},
		{"no such flag", Options{File: noRooms, Flags: map[string]any{"nonsense": "1"}}, []string{"nonsense: no flag sets this"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, problems := load(t, row.options)
			wantProblems(t, problems, row.want...)
		})
	}
}

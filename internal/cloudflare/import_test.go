package cloudflare

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/internal/config"
)

var update = flag.Bool("update", false, "write the golden files of testdata")

// load fails the test unless the gateway accepts the configuration.
func load(t testing.TB, text []byte) *config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Options{File: file})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return cfg
}

func TestRead_GoldenFiles(t *testing.T) {
	secret := filepath.Join("testdata", "draw.secret")
	for _, row := range []struct {
		name string
		o    Options
	}{
		{"list", Options{}},
		{"single", Options{Origin: "http://10.0.0.7:8080"}},
		{"events", Options{Origin: "http://10.0.0.7:8080", DrawSecretFile: secret}},
	} {
		t.Run(row.name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", row.name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			i, err := Read(data, row.o)
			if err != nil {
				t.Fatal(err)
			}
			text, err := i.YAML()
			if err != nil {
				t.Fatal(err)
			}
			load(t, text)
			var notes strings.Builder
			for _, n := range i.Notes {
				fmt.Fprintln(&notes, n)
			}
			for ext, got := range map[string]string{".yaml": string(text), ".notes": notes.String()} {
				file := filepath.Join("testdata", row.name+ext)
				if *update {
					if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatalf("%v; write it with: go test ./internal/cloudflare -update", err)
				}
				if got != string(want) {
					t.Errorf("%s:\n%s\nwant:\n%s", file, got, want)
				}
			}
		})
	}
}

// roomWith returns a file with one room, which has further members.
func roomWith(members string) string {
	if members != "" {
		members = "," + members
	}
	return `{"name":"sale","host":"a.example","path":"/x","new_users_per_minute":300,"total_active_users":500` + members + `}`
}

func TestRead_Fields(t *testing.T) {
	for _, row := range []struct {
		name, members string
		want          func(*config.Room) any
		value         any
	}{
		{"rate per second", "", func(r *config.Room) any { return r.Admission.Rate.String() }, "5"},
		{"active visitors", "", func(r *config.Room) any { return r.Admission.MaxActive }, int64(500)},
		{"session of five minutes", "", func(r *config.Room) any { return r.Session.TTL.String() }, "5m0s"},
		{"session of a day", `"session_duration":1440`, func(r *config.Room) any { return r.Session.TTL.String() + " " + r.Session.Max.String() }, "24h0m0s 24h0m0s"},
		{"sessions that end", `"disable_session_renewal":true`, func(r *config.Room) any { return string(r.Session.Renew) }, "false"},
		{"suspended", `"suspended":true`, func(r *config.Room) any { return r.Enabled }, false},
		{"passthrough", `"queueing_method":"passthrough"`, func(r *config.Room) any { return r.Queue.Method }, "passthrough"},
		{"queue all", `"queueing_method":"passthrough","queue_all":true`, func(r *config.Room) any { return r.Queue.Method + " " + r.Admission.Rate.String() }, "fifo 0"},
		{"random", `"queueing_method":"random"`, func(r *config.Room) any { return r.Queue.Method }, "fifo"},
		{"status of the page", `"queueing_status_code":429`, func(r *config.Room) any { return fmt.Sprint(r.Page.Status, r.Compat, r.CompatStatus) }, "429none0"},
		{"JSON", `"queueing_status_code":202,"json_response_enabled":true`, func(r *config.Room) any { return fmt.Sprint(r.Page.Status, r.Compat, r.CompatStatus) }, "202cloudflare202"},
		{"language", `"default_template_language":"ko-KR"`, func(r *config.Room) any { return r.Page.Languages }, []string{"ko", "en"}},
		{"null", `"session_duration":null,"custom_page_html":null,"rules":null`, func(r *config.Room) any { return r.Session.TTL.String() }, "5m0s"},
		{"escaped path", `"additional_routes":[{"host":"a.example","path":"/caf%C3%A9"}]`, func(r *config.Room) any { return r.Paths }, []string{"/x", "/café"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			i, err := Read([]byte(roomWith(row.members)), Options{Origin: "http://10.0.0.7:8080"})
			if err != nil {
				t.Fatal(err)
			}
			text, err := i.YAML()
			if err != nil {
				t.Fatal(err)
			}
			if got := row.want(&load(t, text).Rooms[0]); !reflect.DeepEqual(got, row.value) {
				t.Errorf("%v, want %v\n%s", got, row.value, text)
			}
		})
	}
}

// Every field that is not converted is named with its value.
func TestRead_Notes(t *testing.T) {
	event := func(members string) string {
		return `"events":[{"name":"e","event_start_time":"2031-01-01T10:00:00Z","event_end_time":"2031-01-01T12:00:00Z",` + members + `}]`
	}
	for _, row := range []struct{ name, members, want string }{
		{"unknown field", `"x":{"y": [1, 2]}`, `sale.x = {"y":[1,2]}: this field is not known to the import`},
		{"random", `"queueing_method":"random"`, "sale.queueing_method = random: there is no continuous random order"},
		{"new method", `"queueing_method":"lifo"`, "sale.queueing_method = lifo: is not a method"},
		{"queue all", `"queue_all":true`, "set admission.rate to 5, and queue.method to fifo"},
		{"unusual status", `"queueing_status_code":503`, "sale.queueing_status_code = 503: is not a status"},
		{"page", `"custom_page_html":"<p>\n</p>"`, "sale.custom_page_html = <p> </p>: a page is an html/template file"},
		{"language", `"default_template_language":"fr-FR"`, "sale.default_template_language = fr-FR: the built-in page"},
		{"same site", `"cookie_attributes":{"samesite":"sometimes"}`, "sale.cookie_attributes.samesite = sometimes: is not known"},
		{"origin command", `"enabled_origin_commands":["revoke","extend"]`, "sale.enabled_origin_commands = extend: only the command revoke exists"},
		{"turnstile", `"turnstile_mode":"invisible","turnstile_action":"infinite_queue"`, "sale.turnstile_action = infinite_queue: there is no endless queue"},
		{"path with a wildcard", `"additional_routes":[{"host":"a.example","path":"/a*"}]`, "sale.additional_routes[0].path = /a*: cannot be a prefix"},
		{"reserved path", `"additional_routes":[{"host":"a.example","path":"/.waiting-room/x"}]`, "sale.additional_routes[0].path = /.waiting-room/x: cannot be a prefix"},
		{"host with a port", `"additional_routes":[{"host":"a.example:80","path":"/"}]`, "sale.additional_routes[0].host = a.example:80: is not a host name"},
		{"shuffle without a secret", event(`"prequeue_start_time":"2031-01-01T09:00:00Z","shuffle_at_event_start":true`), "needs a lottery, and a lottery needs a secret"},
		{"pre-queue without a shuffle", event(`"prequeue_start_time":"2031-01-01T09:00:00Z","new_users_per_minute":60`), "sale.events[0].prequeue_start_time = 2031-01-01T09:00:00Z: only a lottery has a pre-queue"},
		{"event without a change", event(`"suspended":false`), "sale.events[0].name = e: the event changes neither rate nor method"},
		{"unknown field of an event", event(`"new_users_per_minute":60,"z":1`), "sale.events[0].z = 1: this field is not known"},
		{"one page of several", `"rules":{"success":true,"result":[],"result_info":{"page":1,"count":0,"total_count":7}}`, "sale.rules.result_info.total_count = 7: the file has 0 of them; request the other pages too"},
		{"unknown field of a rule", `"rules":[{"action":"bypass_waiting_room","expression":"ip.src eq 10.0.0.1","z":1}]`, "sale.rules[0].z = 1: this field is not known"},
		{"action of a rule", `"rules":[{"action":"skip","expression":"ip.src eq 10.0.0.1"}]`, "sale.rules[0].action = skip: the only action"},
	} {
		t.Run(row.name, func(t *testing.T) {
			i, err := Read([]byte(roomWith(row.members)), Options{Origin: "http://10.0.0.7:8080"})
			if err != nil {
				t.Fatal(err)
			}
			text, err := i.YAML()
			if err != nil {
				t.Fatal(err)
			}
			load(t, text)
			for _, n := range i.Notes {
				if strings.Contains(n.String(), row.want) {
					return
				}
			}
			t.Errorf("%v, want %s", i.Notes, row.want)
		})
	}
}

func TestRead_Errors(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"nothing", "", "line 1, column 1: not JSON: unexpected end of JSON input"},
		{"broken", "{\n \"result\": [}\n]", "line 2, column 13: not JSON: invalid character '}'"},
		{"two values", "{} {}", "line 1, column 4: not JSON: invalid character '{' after top-level value"},
		{"number", "7", "the file: is a number; use the result of Cloudflare's API"},
		{"empty list", "[]", "the file has no waiting room"},
		{"refused", `{"success":false,"errors":[{"code":10000,"message":"Authentication error"}],"result":null}`, "success: is false; Cloudflare refused the request: [{\"code\":10000"},
		{"no result", `{"success":true}`, "the file: has no result"},
		{"a null result", `{"success":true,"result":null}`, "the file has no waiting room"},
		{"events only", `[{"name":"e","event_start_time":"2031-01-01T10:00:00Z"}]`, "[0]: is an event or a rule"},
		{"no room", `{"result":[{"id":"x"}]}`, "result[0].name: is missing"},
		{"no host", `{"result":[{"name":"x"}]}`, "result[0].host: is missing"},
		{"no limits", `{"name":"x","host":"a.example"}`, "has no total_active_users"},
		{"a wrong type", roomWith(`"session_duration":"5"`), `sale.session_duration: is a text ("5"); Cloudflare has a number there`},
		{"a fraction", roomWith(`"session_duration":1.5`), "sale.session_duration: 1.5 cannot be read: use a whole number"},
		{"out of range", roomWith(`"session_duration":-1`), "sale.session_duration: -1 is not within 1 and 1440"},
		{"twice", roomWith(`"path":"/y"`), "path: is there twice; keep one of them"},
		{"an event without an end", roomWith(`"events":[{"name":"e","event_start_time":"2031-01-01T10:00:00Z"}]`), "sale.events[0].event_end_time: is missing"},
		{"an event that ends early", roomWith(`"events":[{"event_start_time":"2031-01-01T10:00:00Z","event_end_time":"2031-01-01T10:00:00Z"}]`), "sale.events[0].event_end_time: 2031-01-01T10:00:00Z is not after"},
		{"no time", roomWith(`"events":[{"event_start_time":"tomorrow"}]`), `sale.events[0].event_start_time: "tomorrow" is not a time`},
		{"no route", `{"name":"x","host":"a b","new_users_per_minute":200,"total_active_users":200}`, "no waiting room has a route that can be imported: x.host = none"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := Read([]byte(row.text), Options{}); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want %s", err, row.want)
			}
		})
	}
}

func TestParseExpression(t *testing.T) {
	for _, row := range []struct {
		text string
		want []bypass
		err  string
	}{
		{`ip.src eq 10.20.30.40`, []bypass{{IPs: []string{"10.20.30.40/32"}}}, ""},
		{`ip.src in {10.0.0.1 2001:db8::/32}`, []bypass{{IPs: []string{"10.0.0.1/32", "2001:db8::/32"}}}, ""},
		{`ip.src in {::ffff:10.0.0.1 0.0.0.0/0}`, []bypass{{IPs: []string{"10.0.0.1/32", "0.0.0.0/0"}}}, ""},
		{`http.request.uri.path eq "/Shop.html"`, []bypass{{Paths: []string{`~^/shop\.html$`}}}, ""},
		{`starts_with(http.request.uri.path, "/api/") && http.request.method == "GET"`, []bypass{{Paths: []string{"~^/api/"}, Methods: []string{"GET"}}}, ""},
		{`(ip.src eq 10.0.0.1 or http.user_agent contains "a \"b\"") and http.request.method in {"GET" "HEAD"}`,
			[]bypass{{IPs: []string{"10.0.0.1/32"}, Methods: []string{"GET", "HEAD"}}, {UserAgents: []string{`a "b"`}, Methods: []string{"GET", "HEAD"}}}, ""},
		{``, nil, "the expression ends early"},
		{`not ip.src eq 10.0.0.1`, nil, "not is not supported"},
		{`ip.src ne 10.0.0.1`, nil, "ip.src is supported with eq and in only"},
		{`ip.src in $office`, nil, `"$office" is not supported`},
		{`ip.src in {}`, nil, "a list is empty"},
		{`ip.src eq 10.0.0.1 and ip.src eq 10.0.0.2`, nil, "tests one field twice"},
		{`http.user_agent contains ""`, nil, "no text in quotes"},
		{`http.user_agent contains " "`, nil, "matches every user agent"},
		{`http.request.uri.path contains "%2f"`, nil, "cannot be tested in a decoded path"},
		{`http.request.uri.path matches "^/a"`, nil, "http.request.uri.path is not supported by the import, or not with this operator"},
		{`http.host eq "a.example"`, nil, "http.host is not supported"},
		{`(ip.src eq 10.0.0.1`, nil, "a parenthesis is not closed"},
		{`ip.src eq 10.0.0.1)`, nil, `")" is not expected`},
		{`http.request.uri.path eq "/a`, nil, "a quotation mark is not closed"},
		{strings.Repeat("(", 40) + `ip.src eq 10.0.0.1`, nil, "nested too deeply"},
		{strings.Repeat(`ip.src eq 10.0.0.1 or `, 100) + `ip.src eq 10.0.0.1`, nil, "more than 64 alternatives"},
	} {
		got, err := parseExpression(row.text)
		if row.err == "" && (err != nil || !reflect.DeepEqual(got, row.want)) {
			t.Errorf("%s: %v, %v; want %v", row.text, got, err, row.want)
		}
		if row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)) {
			t.Errorf("%s: %v, want %s", row.text, err, row.err)
		}
	}
}

// Whatever Read accepts is a configuration that the gateway accepts.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"list", "single", "events"} {
		data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, members := range []string{
		`"path":"/a%2fb"`, `"queue_all":true`, `"rules":[{"action":"bypass_waiting_room","expression":"http.user_agent contains \"x\" or ip.src in {::1 10.0.0.0/8}"}]`,
		`"events":[{"name":"e","event_start_time":"2031-01-01T10:00:00Z","event_end_time":"2031-01-01T12:00:00Z","new_users_per_minute":1}]`,
	} {
		f.Add([]byte(roomWith(members)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		i, err := Read(data, Options{})
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Fatal("an empty error")
			}
			return
		}
		text, err := i.YAML()
		if err != nil {
			t.Fatal(err)
		}
		load(t, text)
		for _, n := range i.Notes {
			if strings.ContainsAny(n.String(), "\n\r\x1b") || n.Field == "" || n.Advice == "" {
				t.Fatalf("note %q", n)
			}
		}
	})
}

// Unusual values never become a configuration that the gateway refuses.
func TestRead_AcceptsOnlyWhatTheGatewayAccepts(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-zA-Z0-9./~^*%:_\- é]{0,12}`), rapid.SampledFrom([]string{"/", "/a", "/A", "a.example", "b.example", "é.example", "fifo", "random", "reject", "passthrough", "none", "ko-KR"}))
		maybe := func(name string, v any, into map[string]any) {
			if rapid.Bool().Draw(t, "has "+name) {
				into[name] = v
			}
		}
		moments := rapid.SampledFrom([]string{"2031-01-01T09:00:00Z", "2031-01-01T10:00:00.5Z", "2031-01-01T11:00:00+09:00", "2031-01-02T00:00:00Z", "2031-02-01T00:00:00Z"})
		rooms := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) map[string]any {
			host := rapid.OneOf(rapid.SampledFrom([]string{"a.example", "b.example", "*.c.example"}), text)
			r := map[string]any{
				"name": "n" + text.Draw(t, "name"), "host": "x" + host.Draw(t, "host"), "path": rapid.OneOf(rapid.SampledFrom([]string{"", "/", "/a", "/A/"}), text).Draw(t, "path"),
				"new_users_per_minute": rapid.Int64Range(1, maxPerMinute).Draw(t, "rate"), "total_active_users": rapid.Int64Range(1, maxUsers).Draw(t, "active"),
				"additional_routes": rapid.SliceOfN(rapid.Custom(func(t *rapid.T) map[string]any {
					return map[string]any{"host": "x" + host.Draw(t, "host"), "path": text.Draw(t, "path")}
				}), 0, 4).Draw(t, "routes"),
			}
			maybe("queueing_method", text.Draw(t, "method"), r)
			maybe("queueing_status_code", rapid.IntRange(200, 599).Draw(t, "status"), r)
			maybe("session_duration", rapid.IntRange(1, maxSession).Draw(t, "session"), r)
			maybe("default_template_language", text.Draw(t, "language"), r)
			maybe("json_response_enabled", true, r)
			maybe("queue_all", true, r)
			maybe("cookie_attributes", map[string]any{"samesite": text.Draw(t, "same site")}, r)
			maybe("rules", []any{map[string]any{"action": "bypass_waiting_room", "expression": rapid.SampledFrom([]string{
				"http.user_agent contains " + fmt.Sprintf("%q", text.Draw(t, "agent")), "http.request.uri.path contains " + fmt.Sprintf("%q", text.Draw(t, "part")),
				"ip.src in {" + text.Draw(t, "address") + " ::ffff:10.0.0.1 0.0.0.0/0}", "http.request.method eq \"GET\" or ip.src eq ::1",
			}).Draw(t, "expression")}}, r)
			maybe("events", rapid.SliceOfN(rapid.Custom(func(t *rapid.T) map[string]any {
				e := map[string]any{"name": text.Draw(t, "event"), "event_start_time": moments.Draw(t, "start"), "event_end_time": moments.Draw(t, "end")}
				maybe("prequeue_start_time", moments.Draw(t, "prequeue"), e)
				maybe("shuffle_at_event_start", true, e)
				maybe("queueing_method", text.Draw(t, "method"), e)
				maybe("new_users_per_minute", rapid.Int64Range(1, maxPerMinute).Draw(t, "rate"), e)
				return e
			}), 0, 3).Draw(t, "events"), r)
			return r
		}), 1, 3).Draw(t, "rooms")
		data, err := json.Marshal(rooms)
		if err != nil {
			t.Fatal(err)
		}
		i, err := Read(data, Options{DrawSecretFile: filepath.Join("testdata", "draw.secret")})
		if err != nil {
			return
		}
		yaml, err := i.YAML()
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "gateway.yaml")
		if err := os.WriteFile(file, yaml, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(config.Options{File: file}); err != nil {
			t.Fatalf("%v\n%s\n%s", err, data, yaml)
		}
	})
}

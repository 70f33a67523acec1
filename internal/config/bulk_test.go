package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/settings"
)

// loadBulk returns the problems as lines; DIR in the text stands for a directory
// with files.
func loadBulk(t testing.TB, o BulkOptions) (*Bulk, []string) {
	t.Helper()
	cfg, err := LoadBulk(o)
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
	return nil, strings.Split(err.Error(), "\n")
}

func bulkText(t testing.TB, text string) (*Bulk, []string) {
	t.Helper()
	return loadBulk(t, BulkOptions{File: write(t, "bulkworker.yaml", text)})
}

func bulkFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"token": " Zk3vQ9xW2mLr8TbN\n", "other": "aB3dE6gH9jK2mN5pQ8sT\n", "short": "Zk3vQ9xW2mLr8Tb\n", "blank": "has blanks in it and is long\n", "key.json": "{}",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoadBulk_SetsDefaults(t *testing.T) {
	for name, o := range map[string]BulkOptions{"nothing": {}, "empty file": {File: write(t, "empty.yaml", "")}} {
		cfg, problems := loadBulk(t, o)
		wantProblems(t, problems)
		if cfg.Listen != "127.0.0.1:8090" || cfg.Store.Timeout != time.Second || cfg.Rate.Global != 10_000_000 || cfg.Worker.Count != 10 ||
			cfg.Congestion.MaxBackoff != 2*time.Minute || cfg.Limits.Line != 64<<10 || !cfg.FairQueue.Gating || cfg.Retention.Dead != 720*time.Hour {
			t.Errorf("%s: %+v", name, cfg)
		}
		if len(cfg.Processors) != 3 || len(cfg.Active()) != 0 || cfg.Processors["email"].Kind != KindEmail || cfg.Processors["push"].Timeout != 10*time.Second {
			t.Errorf("%s: processors %+v", name, cfg.Processors)
		}
	}
}

func TestLoadBulk_FlagsOverrideEnvironmentAndFile(t *testing.T) {
	file := write(t, "bulkworker.yaml", "listen: '127.0.0.1:1001'\nrate: {global: 1.5}\nprocessors: {webhook: {url: 'http://file/', timeout: 2s}}\n")
	environ := []string{
		"ANTEROOM_LISTEN=127.0.0.1:2001", "ANTEROOM_RATE__GLOBAL=0.125", "ANTEROOM_CALLBACKS__ALLOW=a.example, 10.0.0.7",
		"ANTEROOM_PROCESSORS__WEBHOOK__URL=http://env/", "ANTEROOM_PROCESSORS__SEND_MAIL__KIND=email", "ANTEROOM_PROCESSORS__PUSH__FCM__ENDPOINT=",
	}
	for _, row := range []struct {
		name    string
		options BulkOptions
		want    string
	}{
		{"default", BulkOptions{}, "127.0.0.1:8090 10000  10s"},
		{"file over default", BulkOptions{File: file}, "127.0.0.1:1001 1.5 http://file/ 2s"},
		{"environment over file", BulkOptions{File: file, Environ: environ}, "127.0.0.1:2001 0.125 http://env/ 2s"},
		{"flag over environment", BulkOptions{File: file, Environ: environ, Flags: map[string]any{"listen": "127.0.0.1:3001"}}, "127.0.0.1:3001 0.125 http://env/ 2s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			cfg, problems := loadBulk(t, row.options)
			wantProblems(t, problems)
			webhook := cfg.Processors["webhook"]
			if got := strings.Join([]string{cfg.Listen, cfg.Rate.Global.String(), webhook.URL, settings.FormatDuration(webhook.Timeout)}, " "); got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
			if row.options.Environ != nil && (len(cfg.Callbacks.Allow) != 2 || cfg.Processors["send_mail"].Kind != KindEmail) {
				t.Errorf("%+v", cfg)
			}
		})
	}
}

func TestLoadBulk_RefusesUnknownVariables(t *testing.T) {
	for _, row := range []struct {
		variable string
		want     []string
	}{
		{"ANTEROOM_RATE__GLOBL=1", []string{"ANTEROOM_RATE__GLOBL: no setting has this variable; did you mean ANTEROOM_RATE__GLOBAL?"}},
		{"ANTEROOM_RATE=1", []string{"ANTEROOM_RATE: rate is a section; name one of its settings, as ANTEROOM_RATE__GLOBAL"}},
		{"ANTEROOM_RATE__GLOBAL=fast", []string{`rate.global: "fast": use a decimal number with at most three places, such as 10 or 2.5 (from ANTEROOM_RATE__GLOBAL)`}},
		{"ANTEROOM_API_TOKENS__0__NAME=x", []string{"ANTEROOM_API_TOKENS__0__NAME: the environment sets single values and comma lists only; write api_tokens in the file"}},
		{"ANTEROOM_PROCESSORS=x", []string{"ANTEROOM_PROCESSORS: processors is a map of sections; name a single value in one of them, as ANTEROOM_PROCESSORS__WEBHOOK__KIND"}},
		{"ANTEROOM_PROCESSORS__WEBHOOK=x", []string{"ANTEROOM_PROCESSORS__WEBHOOK: processors is a map of sections"}},
		{"ANTEROOM_PROCESSORS__WEBHOOK__HEADERS=x", []string{"ANTEROOM_PROCESSORS__WEBHOOK__HEADERS: processors is a map"}},
		{"ANTEROOM_PROCESSORS__WEBHOOK__HEADERS__X_A=x", []string{"ANTEROOM_PROCESSORS__WEBHOOK__HEADERS__X_A: processors is a map"}},
		{"ANTEROOM_PROCESSORS____URL=x", []string{"ANTEROOM_PROCESSORS____URL: processors is a map"}},
		{"ANTEROOM_PROCESSORS__WEBHOK__URL=http://a", []string{"processors.webhok.kind: is missing; use webhook, email, push or pull"}},
		{"ANTEROOM_PROCESSORS__WEBHOOK__TIMEOUT=5", []string{`processors.webhook.timeout: "5": use a duration with its unit (ms, s, m, h), such as 30s or 1h30m (from ANTEROOM_PROCESSORS__WEBHOOK__TIMEOUT)`}},
		{"ANTEROOM_SHUTDOWN_TIMEOUT=5s", []string{"ANTEROOM_SHUTDOWN_TIMEOUT: is a setting of gateway, not of bulkworker; give each program an environment of its own"}},
		{"ANTEROOM_BULKWORKER_SERVICE_HOST=10.1.2.3", nil},
		{"ANTEROOM_BULKWORKER_PORT=tcp://10.1.2.3:8090", nil},
	} {
		t.Run(row.variable, func(t *testing.T) {
			_, problems := loadBulk(t, BulkOptions{Environ: []string{row.variable}})
			wantProblems(t, problems, row.want...)
		})
	}
	_, problems := load(t, Options{File: write(t, "gateway.yaml", shop), Environ: []string{"ANTEROOM_RATE__GLOBAL=5"}})
	wantProblems(t, problems, "ANTEROOM_RATE__GLOBAL: is a setting of bulkworker, not of gateway")
}

func TestLoadBulk_ReportsEachProblem(t *testing.T) {
	dir := bulkFiles(t)
	hook := func(settings string) string { return "processors: {webhook: {url: 'http://h/', " + settings + "}}" }
	for _, row := range []struct {
		name, text string
		want       []string
	}{
		// Strictness is the gateway's loader's; a few rows show that it is at work.
		{"unknown key", "wroker: {count: 1}", []string{"wroker: unknown key; did you mean worker?"}},
		{"key at the wrong level", "lease: 5s", []string{"lease: unknown key here; did you mean worker.lease?"}},
		{"unknown key of a processor", "processors: {webhook: {ulr: x}}", []string{"processors.webhook.ulr: unknown key; did you mean url?"}},
		{"processor's key at the wrong level", "processors: {push: {vapid_key_file: x}}", []string{"processors.push.vapid_key_file: unknown key here; did you mean webpush.vapid_key_file?"}},
		{"quoted rate", "rate: {global: '10'}", []string{`rate.global: "10": use a number without quotes`}},
		{"fourth decimal", "rate: {global: 0.1234}", []string{"rate.global: 0.1234: has more than three decimal places"}},
		{"negative alpha", "fair_queue: {alpha: -10000}", nil},
		{"processors as a list", "processors: [webhook]", []string{"processors: is a map of sections"}},
		{"processor as text", "processors: {webhook: x}", []string{"processors.webhook: is not a section"}},
		{"every problem at once", "listen: x\nrate: {global: 0}\nworker: {lease: 0s}", []string{
			`listen: "x" is not a listen address`, "rate.global: 0 is too small; use at least 0.001", "worker.lease: 0s is too small; use at least 100ms"}},

		// Who may come in.
		{"all interfaces without a token", "listen: ':8090'", []string{`admin.token: is missing; ":8090" can be reached from other machines`}},
		{"all interfaces with the operator's", "listen: ':8090'\nadmin: {token: 0123456789abcdef}", nil},
		{"all interfaces with a team's", "listen: ':8090'\napi_tokens: [{name: a, tenants: [acme], token_file: DIR/token}]", nil},
		{"loopback by name", "listen: 'localhost:0'", nil},
		{"token that cannot be sent", "admin: {token: 'a b'}", []string{"admin.token: holds characters"}},
		{"printed token", "admin: {token: '***'}", []string{"admin.token: is the mask"}},
		{"token without a file", "api_tokens: [{name: a, tenants: [t]}]", []string{"api_tokens[0].token_file: is missing"}},
		{"token of a file that is not there", "api_tokens: [{name: a, tenants: [t], token_file: DIR/none}]", []string{`api_tokens[0].token_file: "DIR/none" cannot be read`}},
		{"short token", "api_tokens: [{name: a, tenants: [t], token_file: DIR/short}]", []string{`api_tokens[0].token_file: "DIR/short" holds 15 characters; use at least 16`}},
		{"shortest token", "api_tokens: [{name: a, tenants: [t], token_file: DIR/token}]", nil},
		{"token with blanks", "api_tokens: [{name: a, tenants: [t], token_file: DIR/blank}]", []string{"api_tokens[0].token_file: holds characters that a bearer token cannot have"}},
		{"one token for two", "api_tokens: [{name: a, tenants: [t], token_file: DIR/token}, {name: b, tenants: [t], token_file: DIR/token}]", []string{`api_tokens[1].token_file: "DIR/token" holds a token that is already used above`}},
		{"one name for two", "api_tokens: [{name: a, tenants: [t], token_file: DIR/token}, {name: a, tenants: [t], token_file: DIR/other}]", []string{`api_tokens[1].name: "a" is there already`}},
		{"token of nobody for nobody", "api_tokens: [{token_file: DIR/token}]", []string{"api_tokens[0].name: is missing", "api_tokens[0].tenants: is empty; list the tenants"}},
		{"tenant", "api_tokens: [{name: a, tenants: ['a b', ok], token_file: DIR/token}]", []string{`api_tokens[0].tenants[0]: "a b" is not a tenant`}},

		// Store.
		{"store", "store: {url: 'mysql://h'}", []string{"store.url: mysql://h: it has an unknown scheme"}},
		{"prefix", "store: {prefix: 'a:b'}", []string{`store.prefix: "a:b" is not a prefix`}},
		{"replica of the embedded store", "durability: replica", []string{"durability: replica needs a store.url"}},
		{"replica", "durability: replica\nstore: {url: 'redis://h'}", nil},
		{"disk", "durability: disk", nil},
		{"durability by the design's word", "durability: wait", []string{`durability: "wait" is not known; use none, replica or disk`}},

		// Pace.
		{"cap above the whole", "rate: {global: 10, per_tenant: 10.001}", []string{"rate.per_tenant: 10.001 is more than rate.global (10)"}},
		{"cap of the whole", "rate: {global: 10, per_tenant: 10}", nil},
		{"burst below one", "rate: {burst: 0.5}", []string{"rate.burst: 0.5 never starts a whole job"}},
		{"words", "limiter: leaky\nfair_queue: {policy: fifo}", []string{`limiter: "leaky" is not known; use gcra or fixed_window`, `fair_queue.policy: "fifo" is not known; use fair or score`}},
		{"classic pipeline", "limiter: fixed_window\nfair_queue: {policy: score, gating: false}", nil},
		{"retry", "processors: {webhook: {retry: {base: 20m}}}", []string{"processors.webhook.retry.base: 20m is more than processors.webhook.retry.most (15m)"}},
		{"backoff", "congestion: {base_backoff: 3m}", []string{"congestion.base_backoff: 3m is more than congestion.max_backoff (2m)"}},
		{"autoscaling", "worker: {count: 5, min: 2, max: 50}", nil},
		{"autoscaling by max alone", "worker: {max: 50}", nil},
		{"min alone", "worker: {min: 2}", []string{"worker.min: 2 is more than worker.max (0)"}},
		{"least above most", "worker: {min: 20, max: 10}", []string{"worker.min: 20 is more than worker.max (10)"}},
		{"count outside", "worker: {count: 5, min: 10, max: 20}", []string{"worker.count: 5 is not between worker.min (10) and worker.max (20)"}},
		{"fewer than no workers", "worker: {count: -1}", []string{"worker.count: -1 is too small; use at least 0"}},
		{"none to scale", "worker: {count: 0, max: 5}", []string{"worker.count: 0 is not between"}},
		{"long line", "limits: {line: 2MiB}", []string{"limits.line: 2MiB is too large; use at most 1MiB"}},

		// Callbacks.
		{"callbacks", "callbacks: {allow: [hooks.internal, 10.0.0.7], secret_file: DIR/token}", nil},
		{"callbacks' secret", "callbacks: {secret_file: DIR/short}", []string{`callbacks.secret_file: "DIR/short" holds 15 characters`}},

		// Processors.
		{"webhook", hook("secret_file: DIR/token, headers: {Authorization: Bearer x}, timeout: 3s"), nil},
		{"type of its own", "processors: {invoice.v2: {kind: webhook, url: 'https://u:p@h:1/x?y=z'}}", nil},
		{"type of its own without a kind", "processors: {invoice: {url: 'http://h'}}", []string{"processors.invoice.kind: is missing; use webhook, email, push or pull"}},
		{"unknown kind", "processors: {invoice: {kind: sms}}", []string{`processors.invoice.kind: "sms" is not known; use webhook, email, push or pull`}},
		{"type with a blank", "processors: {'a b': {kind: webhook}}", []string{`processors.a b: "a b" is not a job type`}},
		{"the name of one kind for another", "processors: {webhook: {kind: email, smtp: 'smtp://h', from: a@b.example}}", nil},
		{"setting of another kind", "processors: {webhook: {smtp: 'smtp://h'}, email: {headers: {A: b}}, push: {url: 'http://h'}}", []string{
			"processors.webhook.smtp: belongs to kind email, and this is webhook; leave it out", "processors.email.headers: belongs to kind webhook",
			"processors.push.url: belongs to kind webhook"}},
		{"header that is no text", hook("headers: {A: 5}"), []string{"processors.webhook.headers.A: is not text; put it in quotes"}},
		{"mail without a server", "processors: {email: {from: a@b.example}}", []string{"processors.email.smtp: is missing"}},
		{"push", "processors: {push: {fcm: {credentials_file: DIR/key.json, endpoint: 'http://127.0.0.1:1'}, webpush: {vapid_key_file: DIR/key.json}}}", nil},
		{"endpoint alone", "processors: {push: {fcm: {endpoint: 'http://h'}}}", []string{"processors.push.fcm.credentials_file: is missing"}},

		{"adaptive, off", "adaptive: {enabled: false, min_rate: 5}", nil},
		{"people first", "people_first: {origin: Shop}", []string{`people_first.origin: "Shop" is not an origin of a gateway`}},
		{"adaptive", "adaptive: {enabled: true}\nrate: {global: 10}", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, problems := bulkText(t, strings.ReplaceAll(row.text, "DIR", dir)+"\n")
			for i := range row.want {
				row.want[i] = strings.ReplaceAll(row.want[i], "DIR", dir)
			}
			wantProblems(t, problems, row.want...)
			if strings.Contains(strings.Join(problems, "\n"), "hunter2") {
				t.Errorf("a secret is shown: %s", problems)
			}
		})
	}
}

func TestBulk_IsActive(t *testing.T) {
	dir := bulkFiles(t)
	cfg, problems := bulkText(t, strings.ReplaceAll(`
processors:
  webhook: {url: ""}
  email: {smtp: "smtp://h", from: a@b.example}
  push: {webpush: {vapid_key_file: DIR/key.json}}
  invoice: {kind: webhook, url: "http://h", secret_file: DIR/token}
api_tokens: [{name: ann, tenants: [acme], token_file: DIR/token}]
callbacks: {secret_file: DIR/other}
`, "DIR", dir))
	wantProblems(t, problems)
	if got := cfg.Active(); !slices.Equal(got, []string{"email", "invoice", "push"}) {
		t.Errorf("active: %v", got)
	}
	if got, err := cfg.Bearers(); err != nil || len(got) != 1 || got[0].Name != "ann" || got[0].Token != "Zk3vQ9xW2mLr8TbN" || got[0].Tenants[0] != "acme" {
		t.Errorf("bearers: %+v, %v", got, err)
	}
	if got, err := cfg.Callbacks.Secret(); err != nil || string(got) != "aB3dE6gH9jK2mN5pQ8sT" {
		t.Errorf("callbacks: %q, %v", got, err)
	}
	invoice := cfg.Processors["invoice"]
	if got, err := invoice.Secret(); err != nil || string(got) != "Zk3vQ9xW2mLr8TbN" {
		t.Errorf("webhook: %q, %v", got, err)
	}
	invoice.SecretFile = ""
	if got, err := invoice.Secret(); err != nil || got != nil {
		t.Errorf("no secret: %q, %v", got, err)
	}
	want := []string{dir + "/token", dir + "/other", dir + "/token", dir + "/key.json"}
	if got := cfg.Files(); !slices.Equal(got, want) {
		t.Errorf("files: %v", got)
	}
	if least, most := cfg.Worker.Autoscale(); least != 0 || most != 0 {
		t.Errorf("autoscale %d %d", least, most)
	}
	if least, most := (&Worker{Max: 7}).Autoscale(); least != 1 || most != 7 {
		t.Errorf("autoscale %d %d", least, most)
	}
}

func TestBulk_Warnings(t *testing.T) {
	for _, row := range []struct {
		name, text string
		want       []string
	}{
		{"nothing to do", "", []string{"processors: all are off"}},
		{"nothing to do here", "worker: {count: 0}", nil},
		{"nothing that does it", "worker: {count: 0}\nprocessors: {webhook: {url: 'http://h'}}", []string{"worker.count: is 0, so the processors webhook", "processors.webhook.secret_file: is empty"}},
		{"a window of no use", "rate: {window: 5s}\nworker: {count: 0}", []string{"rate.window: is not used with limiter gcra"}},
		{"a window", "rate: {window: 5s}\nlimiter: fixed_window\nworker: {count: 0}", nil},
		{"unsigned", "processors: {webhook: {url: 'http://h'}}", []string{"processors.webhook.secret_file: is empty"}},
		{"pulled alone", "processors: {thumb: {kind: pull}}", nil},
		{"pulled beside none", "worker: {count: 0}\nprocessors: {thumb: {kind: pull}}", nil},
		{"all", "admin: {token: short}\nretention: {groups: 1h}\nworker: {lease: 2s}", []string{"processors: all are off", "admin.token: has fewer",
			"retention.groups: is less than retention.jobs", "worker.lease: is less than three times store.timeout"}},
	} {
		cfg, problems := bulkText(t, row.text)
		wantProblems(t, problems)
		var lines []string
		for _, w := range cfg.Warnings() {
			lines = append(lines, w.String())
		}
		wantProblems(t, lines, row.want...)
	}
}

func TestBulkYAML_LoadsAgain(t *testing.T) {
	dir := bulkFiles(t)
	first, problems := bulkText(t, strings.ReplaceAll(`
listen: "127.0.0.1:0"
store: {prefix: "12", timeout: 250ms}
rate: {global: 0.125, burst: 1.5}
api_tokens: [{name: "yes", tenants: ["007"], token_file: DIR/token}]
worker_tokens: [{name: "no", types: ["1e3"], token_file: DIR/other}]
limits: {line: 1000, result: 1MiB}
processors:
  webhook: {url: "http://h/"}
  invoice.v2: {kind: webhook, url: "http://h/", timeout: 1h30m, secret_file: DIR/token}
  thumb: {kind: pull}
`, "DIR", dir))
	wantProblems(t, problems)
	text, err := first.YAML()
	if err != nil {
		t.Fatal(err)
	}
	second, problems := bulkText(t, string(text))
	wantProblems(t, problems)
	for name, p := range second.Processors { // absent and empty maps are the same
		if len(p.Headers) == 0 {
			p.Headers = nil
			second.Processors[name] = p
		}
	}
	second.Callbacks.Allow, second.Store.URLs = first.Callbacks.Allow, first.Store.URLs // absent and empty lists too
	if !reflect.DeepEqual(first, second) {
		t.Errorf("got another configuration back:\n%+v\n%+v\n%s", first, second, text)
	}
}

func TestBulkYAML_MasksSecrets(t *testing.T) {
	cfg, problems := bulkText(t, `
admin: {token: hunter2-and-longer}
store: {url: "redis://ann:hunter2@h"}
processors:
  webhook: {url: "http://ann:hunter2@h/x?key=hunter2", headers: {Authorization: Bearer hunter2}}
  email: {smtp: "smtp://ann:hunter2@h", from: a@b.example}
`)
	wantProblems(t, problems)
	text, err := cfg.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "hunter2") {
		t.Errorf("a secret is printed:\n%s", text)
	}
	_, problems = bulkText(t, string(text))
	wantProblems(t, problems, "admin.token: is the mask", "store.url: holds the mask", "processors.webhook.url: holds the mask",
		"processors.webhook.headers: Authorization is the mask", "processors.email.smtp: holds the mask")
}

// FuzzBulkFile checks the same as FuzzFile.
func FuzzBulkFile(f *testing.F) {
	for _, seed := range []string{
		"", "listen: ':8080'", "rate: {global: 2.5, burst: 3}", "processors: {webhook: {url: 'http://u:p@h', headers: {A: b}}}", "processors: {a.b: {kind: push}}",
		"processors: &a {webhook: *a}", "processors: {'': {kind: email}}", "processors: {webhook: {kind: null}}", "nonsense: 1", "null: null",
		"processors: {\"a\\nb\": {kind: webhook}}", "worker: {min: 1, max: 5}", "fair_queue: {alpha: -1}", "processors: {webhook: {headers: {'a.b': c}}}",
	} {
		f.Add([]byte(seed))
	}
	file := filepath.Join(f.TempDir(), "bulkworker.yaml")
	load := func(t *testing.T, data []byte) (*Bulk, error) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := LoadBulk(BulkOptions{File: file})
		var problems *Problems
		if err != nil && !errors.As(err, &problems) {
			t.Fatalf("%T: %v", err, err)
		}
		return cfg, err
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := load(t, data)
		if err != nil {
			return
		}
		text, err := cfg.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := load(t, text)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") { // only a mask may keep the printed form from loading
				if !strings.Contains(line, "mask") {
					t.Fatalf("printed and read again: %s\n%s", line, text)
				}
			}
			return
		}
		if second, err := again.YAML(); err != nil || string(second) != string(text) {
			t.Fatalf("printed twice: %v\n%s\n%s", err, text, second)
		}
	})
}

package config

import (
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/settings"
)

func TestLoad_ReadsTheEnvironment(t *testing.T) {
	cfg, problems := load(t, Options{File: write(t, "gateway.yaml", shop), Environ: []string{
		"HOME=/root", "ANTEROOM=x", "OTHER_ANTEROOM_LISTEN=x", "broken",
		"ANTEROOM_LISTEN=127.0.0.1:0",
		"ANTEROOM_TRUSTED_PROXIES=10.0.0.0/8, fd00::/8",
		"ANTEROOM_LIMITS__HEADER=32KiB",
		"ANTEROOM_LIMITS__TARGET=4096",
		"ANTEROOM_LIMITS__HEADERS=50",
		"ANTEROOM_LIMITS__BODY_IDLE=1m",
		"ANTEROOM_LOG__ACCESS=false",
		"ANTEROOM_LOG__ACCESS_SAMPLE=0.25",
		"ANTEROOM_ADMIN__TOKEN=a=b=",
		"ANTEROOM_TOKENS__ISSUER=12345",
	}})
	// The only value that is wrong is a token with = in its middle.
	wantProblems(t, problems, "admin.token: holds characters")
	if cfg != nil {
		t.Fatal("a configuration came with a problem")
	}
	cfg, problems = load(t, Options{File: write(t, "gateway.yaml", shop), Environ: []string{
		"ANTEROOM_LISTEN=127.0.0.1:0", "ANTEROOM_TRUSTED_PROXIES=10.0.0.0/8, fd00::/8", "ANTEROOM_LIMITS__HEADER=32KiB",
		"ANTEROOM_LIMITS__TARGET=4096", "ANTEROOM_LIMITS__HEADERS=50", "ANTEROOM_LIMITS__BODY_IDLE=1m",
		"ANTEROOM_LOG__ACCESS=false", "ANTEROOM_LOG__ACCESS_SAMPLE=0.25", "ANTEROOM_TOKENS__ISSUER=12345", "ANTEROOM_DEFAULT_ORIGIN=",
	}})
	wantProblems(t, problems)
	if cfg.Listen != "127.0.0.1:0" || len(cfg.TrustedProxies) != 2 || cfg.TrustedProxies[1].String() != "fd00::/8" ||
		cfg.Limits.Header != 32<<10 || cfg.Limits.Target != 4096 || cfg.Limits.Headers != 50 || cfg.Limits.BodyIdle != time.Minute ||
		cfg.Log.Access || cfg.Log.AccessSample != 0.25 || cfg.Tokens.Issuer != "12345" {
		t.Errorf("got %+v", cfg)
	}
	cfg, problems = load(t, Options{File: write(t, "gateway.yaml", shop), Environ: []string{"ANTEROOM_TRUSTED_PROXIES="}})
	wantProblems(t, problems)
	if len(cfg.TrustedProxies) != 0 {
		t.Errorf("an empty list: %v", cfg.TrustedProxies)
	}
}

func TestLoad_RefusesUnknownVariables(t *testing.T) {
	for _, row := range []struct {
		variable string
		want     []string
	}{
		{"ANTEROOM_LISTN=:1", []string{"ANTEROOM_LISTN: no setting has this variable; did you mean ANTEROOM_LISTEN?"}},
		{"ANTEROOM_STORE__ULR=x", []string{"ANTEROOM_STORE__ULR: no setting has this variable; did you mean ANTEROOM_STORE__URL?"}},
		{"ANTEROOM_STORE_URL=x", []string{"ANTEROOM_STORE_URL: no setting has this variable; did you mean ANTEROOM_STORE__URL?"}},
		{"ANTEROOM_listen=x", []string{"ANTEROOM_listen: no setting has this variable; did you mean ANTEROOM_LISTEN?"}},
		{"ANTEROOM_STORE=x", []string{"ANTEROOM_STORE: store is a section; name one of its settings, as ANTEROOM_STORE__URL"}},
		{"ANTEROOM_QQQQQQQQQQQQQQQQQQQQQQ=x", []string{"ANTEROOM_QQQQQQQQQQQQQQQQQQQQQQ: no setting has this variable; it is ANTEROOM_ and the path"}},
		{"ANTEROOM_ROOMS=x", []string{"ANTEROOM_ROOMS: the environment sets single values and comma lists only; write rooms in the file"}},
		{"ANTEROOM_ROOMS__0__ID=x", []string{"ANTEROOM_ROOMS__0__ID: the environment sets single values and comma lists only; write rooms in the file"}},
		{"ANTEROOM_ROOMS__ID=x", []string{"ANTEROOM_ROOMS__ID: the environment sets single values"}},
		{"ANTEROOM_ORIGINS__0__SERVERS__0=x", []string{"ANTEROOM_ORIGINS__0__SERVERS__0: the environment sets single values and comma lists only; write origins in the file"}},
		{"ANTEROOM_TOKENS__KEYS__0__SECRET=x", []string{"ANTEROOM_TOKENS__KEYS__0__SECRET: the environment sets single values and comma lists only; write tokens.keys in the file"}},
		{"ANTEROOM_ADMIN__TOKENS__0__NAME=x", []string{"ANTEROOM_ADMIN__TOKENS__0__NAME: the environment sets single values and comma lists only; write admin.tokens in the file"}},
		{"ANTEROOM_TRUSTED_PROXIES__0=10.0.0.0/8", []string{"ANTEROOM_TRUSTED_PROXIES__0: the environment cannot set one element of a list; give the whole list, separated by commas, as ANTEROOM_TRUSTED_PROXIES"}},
		{"ANTEROOM_TRUSTED_PROXIES=10.0.0.0/8,,", []string{"trusted_proxies[1]: \"\": use an address range", "trusted_proxies[2]: \"\": use an address range"}},
		{"ANTEROOM_LIMITS__HEADERS=1.5", []string{"limits.headers: \"1.5\": use a whole number such as 100 (from ANTEROOM_LIMITS__HEADERS)"}},
		{"ANTEROOM_LIMITS__HEADERS=", []string{"limits.headers: \"\": use a whole number"}},
		{"ANTEROOM_LOG__ACCESS=yes", []string{"log.access: \"yes\": use true or false"}},
		{"ANTEROOM_LOG__ACCESS=1", []string{"log.access: \"1\": use true or false"}},
		{"ANTEROOM_STORE__TIMEOUT=250", []string{"store.timeout: \"250\": use a duration"}},
		{"ANTEROOM_LOG__LEVEL=loud", []string{"log.level: \"loud\" is not known; use debug, info, warn or error"}},

		// A Service named anteroom, or whose name begins so, puts these into every container of its namespace.
		{"ANTEROOM_SERVICE_HOST=10.1.2.3", nil},
		{"ANTEROOM_SERVICE_PORT=80", nil},
		{"ANTEROOM_SERVICE_PORT_HTTP=80", nil},
		{"ANTEROOM_PORT=tcp://10.1.2.3:80", nil},
		{"ANTEROOM_PORT_80_TCP=tcp://10.1.2.3:80", nil},
		{"ANTEROOM_PORT_80_TCP_ADDR=10.1.2.3", nil},
		{"ANTEROOM_PORT_80_TCP_PORT=80", nil},
		{"ANTEROOM_PORT_80_TCP_PROTO=tcp", nil},
		{"ANTEROOM_REDIS_SERVICE_HOST=10.1.2.3", nil},
		{"ANTEROOM_REDIS_PORT_6379_TCP=tcp://10.1.2.3:6379", nil},
		{"ANTEROOM_A__B_SERVICE_HOST=10.1.2.3", nil},
		{"ANTEROOM_A__B_PORT=tcp://10.1.2.3:80", nil},
		// A port that is meant as a setting is still reported.
		{"ANTEROOM_ADMIN__PORT=9090", []string{"ANTEROOM_ADMIN__PORT: no setting has this variable"}},
	} {
		t.Run(row.variable, func(t *testing.T) {
			_, problems := load(t, Options{File: write(t, "gateway.yaml", shop), Environ: []string{row.variable}})
			wantProblems(t, problems, row.want...)
		})
	}
}

func TestSettings_EachHasOneVariable(t *testing.T) {
	for _, all := range [][]Setting{Settings(), BulkSettings()} {
		names := make(map[string]string)
		for _, s := range all {
			if strings.ContainsAny(s.Path, "[*") {
				continue
			}
			name := s.Variable()
			if other, taken := names[name]; taken {
				t.Errorf("%s sets %s and %s", name, other, s.Path)
			}
			names[name] = s.Path
			if settings.FromKubernetes(name, "x") {
				t.Errorf("%s looks like a variable of Kubernetes", name)
			}
		}
	}
}

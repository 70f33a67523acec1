package api

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

func specServer() *Server { return &Server{o: Options{ParseAggregate: bulk.ParseAggregate}} }

func TestGroupFields_ReadFromJSONAndQuery(t *testing.T) {
	whole := store.GroupSpec{
		ID: "a:1", Tenant: "acme", Type: "mail", Level: store.High, Weight: 2.5, BasePriority: -1_000_000, Rate: 0.125, Concurrency: 7,
		Aggregate: `{"op":"count"}`, Tolerance: store.Tolerance{Percent: 2.5, Share: true}, CallbackURL: "https://a.example/b?c=d", StartSealed: true,
	}
	least := store.GroupSpec{Tenant: "acme", Type: "mail", Level: store.Normal, Weight: 1}
	for _, row := range []struct {
		json, query string
		want        store.GroupSpec
		faults      string // paths
	}{
		{json: `{"tenant":"acme","type":"mail"}`, query: "tenant=acme&type=mail", want: least},
		{
			json: `{"id":"a:1","tenant":"acme","type":"mail","priority":"high","weight":2.5,"base_priority":-1e6,"rate":0.125,"concurrency":7,` +
				`"aggregate":"count","failure_tolerance":"2.5%","callback_url":"https://a.example/b?c=d","start":"sealed"}`,
			query: "id=a:1&tenant=acme&type=mail&priority=high&weight=2.5&base_priority=-1e6&rate=0.125&concurrency=7&aggregate=count&failure_tolerance=2.5%25" +
				"&callback_url=https%3A%2F%2Fa.example%2Fb%3Fc%3Dd&start=sealed",
			want: whole,
		},
		{json: `{"tenant":"acme","type":"mail","weight":null,"start":null,"aggregate":null}`, query: "tenant=acme&type=mail&start=early", want: least},
		{json: `{"tenant":"7","type":"true"}`, query: "tenant=7&type=true", want: store.GroupSpec{Tenant: "7", Type: "true", Level: store.Normal, Weight: 1}},
		{json: `{}`, query: "", faults: "tenant type"},
		{json: `{"tenant":"a b","type":""}`, query: "tenant=a+b&type=", faults: "tenant type"},
		{json: `{"tenant":"acme","type":"mail","id":"a b"}`, query: "tenant=acme&type=mail&id=a+b", faults: "id"},
		{json: `{"tenant":"acme","type":"mail","priority":"urgent","weight":0,"rate":-1}`, query: "tenant=acme&type=mail&priority=urgent&weight=0&rate=-1", faults: "priority rate weight"},
		{json: `{"tenant":"acme","type":"mail","rate":"x","concurrency":1.5,"weight":0.0101}`, query: "tenant=acme&type=mail&rate=x&concurrency=1.5&weight=0.0101", faults: "concurrency rate weight"},
		{json: `{"tenant":"acme","type":"mail","aggregate":"median"}`, query: "tenant=acme&type=mail&aggregate=median", faults: "aggregate"},
		{json: `{"tenant":"acme","type":"mail","failure_tolerance":-1}`, query: "tenant=acme&type=mail&failure_tolerance=-1", faults: "failure_tolerance"},
		{json: `{"tenant":"acme","type":"mail","failure_tolerance":"101%"}`, query: "tenant=acme&type=mail&failure_tolerance=101%25", faults: "failure_tolerance"},
		{json: `{"tenant":"acme","type":"mail","stop_at":0}`, query: "tenant=acme&type=mail&stop_at=0", faults: "stop_at"},
		{json: `{"tenant":"acme","type":"mail","stop_at":"0.0001%"}`, query: "tenant=acme&type=mail&stop_at=0.0001%25", faults: "stop_at"},
		{json: `{"tenant":"acme","type":"mail","failure_tolerance":"%"}`, query: "tenant=acme&type=mail&failure_tolerance=%25", faults: "failure_tolerance"},
		{json: `{"tenant":"acme","type":"mail","callback_url":"ftp://x"}`, query: "tenant=acme&type=mail&callback_url=ftp://x", faults: "callback_url"},
		{json: `{"tenant":"acme","type":"mail","callback_url":"/x"}`, query: "tenant=acme&type=mail&callback_url=/x", faults: "callback_url"},
		{json: `{"tenant":"acme","type":"mail","callback_url":"http://u:p@x/"}`, query: "tenant=acme&type=mail&callback_url=http://u:p@x/", faults: "callback_url"},
		{json: `{"tenant":"acme","type":"mail","start":"late"}`, query: "tenant=acme&type=mail&start=late", faults: "start"},
		{json: `{"tenant":"acme","type":"mail","wieght":2}`, query: "tenant=acme&type=mail&wieght=2", faults: "wieght"},
		{json: `{"tenant":"acme","type":"mail","type":"x"}`, query: "tenant=acme&type=mail&type=x", faults: "type"},
	} {
		check := func(source string, got store.GroupSpec, faults []ophttp.Fault) {
			t.Helper()
			var paths []string
			for _, f := range faults {
				paths = append(paths, f.Path)
				if f.Problem == "" || f.Allowed == "" || f.Value != nil && !json.Valid(f.Value) {
					t.Errorf("%s: %+v does not help", source, f)
				}
			}
			slices.Sort(paths)
			if strings.Join(paths, " ") != row.faults || row.faults == "" && got != row.want {
				t.Errorf("%s: %+v, faults %v, want %+v, %q", source, got, faults, row.want, row.faults)
			}
		}
		var spec store.GroupSpec
		faults := complete(&spec, decode(specServer().specFields(), []byte(row.json), &spec))
		check(row.json, spec, faults)
		q, err := url.ParseQuery(row.query)
		if err != nil {
			t.Fatal(err)
		}
		spec = store.GroupSpec{}
		faults = complete(&spec, decodeQuery(specServer().specFields(), q, &spec))
		check(row.query, spec, faults)
	}
}

func TestGroupPatch_ReadsChangedFields(t *testing.T) {
	for _, row := range []struct{ json, want, faults string }{
		{`{}`, `{}`, ""},
		{`{"weight":2,"rate":0.5,"priority":"low","concurrency":3,"base_priority":9}`, `{"Weight":2,"Rate":0.5,"Level":"low","Concurrency":3,"BasePriority":9}`, ""},
		{`{"weight":null,"rate":null,"priority":null,"concurrency":null,"base_priority":null}`, `{"Weight":1,"Rate":0,"Level":"normal","Concurrency":0,"BasePriority":0}`, ""},
		{`{"tenant":"x","rate":1}`, "", "tenant"},
		{`{"weight":101}`, "", "weight"},
		{`{"paused":true}`, "", "paused"},
	} {
		var p store.Patch
		faults := decode(patchFields, []byte(row.json), &p)
		given := map[string]any{}
		for name, v := range map[string]any{"Weight": p.Weight, "Rate": p.Rate, "Level": p.Level, "Concurrency": p.Concurrency, "BasePriority": p.BasePriority} {
			if text := string(ophttp.Marshal(v)); text != "null" {
				given[name] = v
			}
		}
		var want any
		if row.want != "" {
			if err := json.Unmarshal([]byte(row.want), &want); err != nil {
				t.Fatal(err)
			}
		}
		switch {
		case row.faults != "" && (len(faults) != 1 || faults[0].Path != row.faults):
			t.Errorf("%s: %+v", row.json, faults)
		case row.faults == "" && (len(faults) > 0 || string(ophttp.Marshal(given)) != string(ophttp.Marshal(want))):
			t.Errorf("%s: %s, %+v", row.json, ophttp.Marshal(given), faults)
		}
	}
}

func TestDecimal_AllowsThreeDecimals(t *testing.T) {
	for _, row := range []struct {
		text  string
		want  float64
		wrong string
	}{
		{"0", 0, ""}, {"-0", 0, ""}, {"0.001", 0.001, ""}, {"123456.789", 123456.789, ""}, {"1e3", 1000, ""}, {"1000000", 1e6, ""},
		{"0.0001", 0, "more than three"}, {"1.0005", 0, "more than three"}, {"1000000.001", 0, "range"}, {"1e400", 0, "range"}, {"-0.001", 0, "range"}, {`"1"`, 0, "not a number"}, {"true", 0, "not a number"},
	} {
		got, wrong := decimal([]byte(row.text), 0, 1e6)
		if got != row.want || !strings.Contains(wrong, row.wrong) || (wrong == "") != (row.wrong == "") {
			t.Errorf("%s: %v, %q", row.text, got, wrong)
		}
	}
}

// FuzzGroupFields checks that no object and no query causes a panic, and that refused input yields no spec.
func FuzzGroupFields(f *testing.F) {
	for _, s := range []string{`{"tenant":"a","type":"b"}`, `{"failure_tolerance":"5%","rate":1e1000}`, `{"callback_url":"http://[::1]:x"}`, `tenant=a&type=b&rate=%zz`, `{"":{}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		check := func(spec store.GroupSpec, faults []ophttp.Fault) {
			if faults = complete(&spec, faults); len(faults) > 0 {
				ophttp.Marshal(ophttp.Invalid(faults...))
				return
			}
			if spec.Tenant == "" || spec.Type == "" || spec.Rate < 0 || spec.Rate > maxRate || spec.Weight < 0.01 || spec.Weight > 100 {
				t.Errorf("%q became %+v", text, spec)
			}
		}
		if o, err := ophttp.Object(text); err == nil {
			var spec store.GroupSpec
			faults := decode(specServer().specFields(), o, &spec)
			check(spec, faults)
		}
		if q, err := url.ParseQuery(string(text)); err == nil {
			var spec store.GroupSpec
			faults := decodeQuery(specServer().specFields(), q, &spec)
			check(spec, faults)
		}
	})
}

// Of two labels with one key the last one would win silently.
func TestGroups_RefuseALabelGivenTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const twice = `{"campaign":"spring","team":"a","campaign":"summer"}`
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","labels":`+twice+`}`), 422, "invalid", `"path":"labels"`, `label \"campaign\" twice`)
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","labels":{"a":"1","\u0061":"1"}}`), 422, "invalid", `label \"a\" twice`)
	wantCode(t, b.ask("POST", "/v1/bulk?tenant=acme&type=mail&id=x&labels="+url.QueryEscape(twice), lines(1)), 422, "invalid", `label \"campaign\" twice`)
	wantCode(t, b.ask("POST", "/v1/schedules", `{"tenant":"acme","cron":"@daily","jobs":[{"payload":1}],"group":{"type":"mail","labels":`+twice+`}}`), 422, "invalid", `"path":"group.labels"`, `label \"campaign\" twice`)
}

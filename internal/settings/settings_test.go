package settings

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestNew_RefusesBoundsThatExcludeEachOther(t *testing.T) {
	defer func() {
		if err := recover(); err == nil || !strings.Contains(err.(string), "bounds of size") {
			t.Errorf("%v", err)
		}
	}()
	New[struct {
		Size Size `koanf:"size" min:"2KiB" max:"1KiB"`
	}]("test")
}

type drinks struct {
	Kind  string            `koanf:"kind" default:"tea" enum:"tea,milk"`
	Sugar int64             `koanf:"sugar" default:"1" max:"3"`
	Price *Rate             `koanf:"price"`
	Cups  map[string]cup    `koanf:"cups" default:"big"`
	Extra []string          `koanf:"extra" default:"lemon"`
	Notes map[string]string `koanf:"notes" secret:"true"`
	Ice   bool              `koanf:"ice" later:"leave it out"`
}

type cup struct {
	Size Size `koanf:"size" default:"1KiB"`
}

var drinksSchema = New[drinks]("bar")

// load reads a file, variables and flags and returns the configuration as text, or the problems.
func load(t *testing.T, file string, environ []string, flags map[string]any) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "bar.yaml")
	if err := os.WriteFile(name, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := drinksSchema.Load(Sources[drinks]{File: name, Environ: environ, Flags: flags},
		func(*drinks, *Problems) {}, func(d *drinks) []Problem { return Check(d).List })
	if err != nil {
		return err.Error()
	}
	text, err := YAML(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func TestLoad_FlagsOverEnvironmentOverFileOverDefaults(t *testing.T) {
	const want = `kind: milk
sugar: 3
price: 2.5
cups:
  big:
    size: 2KiB
  small:
    size: 1KiB
extra: [mint, honey]
notes:
  a: '***'
ice: false`
	got := load(t, "kind: tea\nsugar: 2\nprice: 2.5\ncups: {small: }\nnotes: {a: b}",
		[]string{"ANTEROOM_SUGAR=3", "ANTEROOM_EXTRA=mint, honey", "ANTEROOM_CUPS__BIG__SIZE=2KiB"}, map[string]any{"kind": "milk"})
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestLoad_ReportsEveryProblem(t *testing.T) {
	got := strings.Split(load(t, "kind: coffee\nsuger: 2\nsugar: '4'\nprice: 0.0005\nice: true\ncups: {big: {size: 1.5}}\nnotes: {a: 1}", []string{"ANTEROOM_SUGAR=5", "ANTEROOM_KINT=x"}, nil), "\n")
	want := []string{
		`cups.big.size: 1.5: use a whole number of bytes with or without one of the units B, KiB, MiB, GiB, TiB, PiB, such as 16KiB`,
		`notes.a: is not text; put it in quotes`,
		`price: 0.0005: has more than three decimal places, which would be lost; round it to thousandths`,
		`sugar: "4": use a whole number such as 100`,
		`suger: unknown key; did you mean sugar?`,
		`ANTEROOM_KINT: no setting has this variable; did you mean ANTEROOM_KIND?`,
		`ice: "true" is not available in this version; leave it out`,
		`kind: "coffee" is not known; use tea or milk`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

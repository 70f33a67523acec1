package lua

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/anteroom/anteroom/internal/redistest"
)

func recordsFixture(library, body string) fstest.MapFS {
	header, _, _ := strings.Cut(good, "\n\n")
	return fstest.MapFS{
		"room_peek.lua": {Data: []byte(header + "\n\n" + body)},
		"lib/one.lua":   {Data: []byte(library)},
		"lib/two.lua":   {Data: []byte("-- two\n")},
	}
}

const twoRecords = "-- RECORD G: key, id,\n--   sealed_at\n-- RECORD T: name\nlocal one = G_ID\n"

func TestRecords_FieldsBecomeNumbers(t *testing.T) {
	set, err := LoadFS(recordsFixture(twoRecords, "return { G_KEY, G_SEALED_AT, T_NAME, G_LENGTH, G_FIELDS, X_OTHER, one }\n"))
	if err != nil {
		t.Fatal(err)
	}
	sc := set.Script("room_peek")
	for _, want := range []string{"local one = 2\n", "return { 1, 3, 1, 3, { 'key', 'id', 'sealed_at' }, X_OTHER, one }\n"} {
		if !strings.Contains(sc.Source, want) {
			t.Errorf("%q is not in\n%s", want, sc.Source)
		}
	}
	if !maps.EqualFunc(sc.Records, map[string][]string{"G": {"key", "id", "sealed_at"}, "T": {"name"}}, slices.Equal) {
		t.Errorf("records %v", sc.Records)
	}
}

func TestRecords_AreChecked(t *testing.T) {
	for _, row := range []struct{ name, library, body, want string }{
		{"an unknown field", twoRecords, "return G_KIND\n", "G_KIND: RECORD G has no field kind"},
		{"a record twice", twoRecords + "-- RECORD G: key\n", "return 1\n", "lib/one.lua: RECORD G stands there twice"},
		{"a field twice", "-- RECORD G: key, key\n", "return 1\n", `lib/one.lua: RECORD G: "key" stands there twice`},
		{"no name", "-- RECORD G: Key\n", "return 1\n", `lib/one.lua: RECORD G: "Key" is not a name`},
		{"a reserved name", "-- RECORD G: length\n", "return 1\n", "length and fields mean the record itself"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := LoadFS(recordsFixture(row.library, row.body)); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
}

// TestScripts_LeaveRoomForLocals: Lua allows 200 local variables in a function, and a script that has them all cannot grow.
func TestScripts_LeaveRoomForLocals(t *testing.T) {
	const limit, most = 200, 149
	var spare strings.Builder
	for i := range limit - most {
		fmt.Fprintf(&spare, "local spare%d = 1 ", i)
	}
	client, set := redistest.Client(t), MustLoad()
	for _, name := range set.Names() {
		if strings.HasPrefix(name, "room_") {
			continue // those of the gateway declare no record
		}
		head, body, _ := strings.Cut(set.Script(name).Source, "\n")
		if err := client.ScriptLoad(t.Context(), head+"\n"+spare.String()+body).Err(); err != nil {
			t.Errorf("%s has more than %d local variables: %v", name, most, err)
		}
	}
}

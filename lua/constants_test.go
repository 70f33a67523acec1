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
		{"a record twice", twoRecords + "-- RECORD G: key\n", "return 1\n", "lib/one.lua: RECORD G is declared twice"},
		{"a field twice", "-- RECORD G: key, key\n", "return 1\n", `lib/one.lua: RECORD G: "key" is repeated`},
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

// TestReplies_BecomeTheirValues: the script's own reply codes and those of its libraries, strings and numbers.
func TestReplies_BecomeTheirValues(t *testing.T) {
	fsys := recordsFixture("-- REPLY OK: 'OK'  the call was made\nlocal one = REPLY_OK\n", "")
	fsys["room_peek.lua"] = &fstest.MapFile{Data: []byte(strings.Replace(good, "-- INCLUDE:", "-- REPLY LET_IN: 'A'  was let in,\n--   as it says\n-- REPLY GONE:   2\n-- INCLUDE:", 1) +
		"return { REPLY_LET_IN, REPLY_GONE, REPLY_OK, MY_REPLY_OK } -- REPLY\n")}
	set, err := LoadFS(fsys)
	if err != nil {
		t.Fatal(err)
	}
	sc := set.Script("room_peek")
	for _, want := range []string{"local one = 'OK'\n", "return { 'A', 2, 'OK', MY_REPLY_OK } -- REPLY\n"} {
		if !strings.Contains(sc.Source, want) {
			t.Errorf("%q is not in\n%s", want, sc.Source)
		}
	}
	if want := map[string]string{"OK": "OK", "LET_IN": "A", "GONE": "2"}; !maps.Equal(sc.Replies, want) {
		t.Errorf("replies %v, want %v", sc.Replies, want)
	}
}

func TestReplies_AreChecked(t *testing.T) {
	const ok = "-- REPLY OK: 'OK'\n"
	for _, row := range []struct{ name, library, head, body, want string }{
		{"an undeclared code", ok, "", "return REPLY_ADMITTED\n", "REPLY_ADMITTED: no REPLY ADMITTED is declared"},
		{"a code that is not used", ok, "-- REPLY GONE: 'G'\n", "return REPLY_GONE_BY\n", "REPLY GONE is declared and not used"},
		{"a name twice", ok, "-- REPLY OK: 'G'\n", "return REPLY_OK\n", "lib/one.lua: REPLY OK is declared twice"},
		{"a value twice", ok, "-- REPLY FINE: 'OK'\n", "return REPLY_FINE\n", "lib/one.lua: REPLY OK: another reply is \"OK\", too"},
		{"a value twice in one file", ok + "-- REPLY FINE: 'OK'\n", "", "return 1\n", "lib/one.lua: REPLY OK and REPLY FINE are both 'OK'"},
		{"no value", ok, "-- REPLY GONE: gone\n", "return REPLY_GONE\n", "must be \"-- REPLY <NAME>: <'text' or number> <meaning>\""},
		{"a name in lower case", "-- REPLY Gone: 'G'\n", "", "return 1\n", "lib/one.lua: \"-- REPLY Gone: 'G'\" must be"},
	} {
		t.Run(row.name, func(t *testing.T) {
			fsys := recordsFixture(row.library, "")
			fsys["room_peek.lua"] = &fstest.MapFile{Data: []byte(strings.Replace(good, "-- INCLUDE:", row.head+"-- INCLUDE:", 1) + row.body)}
			if _, err := LoadFS(fsys); err == nil || !strings.Contains(err.Error(), row.want) {
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

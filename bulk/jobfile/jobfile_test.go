package jobfile

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/bulk/client"
)

// lines returns the lines of a CSV file, each rejected one as "line: reason", and the error that ended it.
func lines(text string, o Options) (string, error) {
	c, err := NewRecords(iotest.OneByteReader(strings.NewReader(text)), o)
	if err != nil {
		return "", err
	}
	var b []byte
	size := int64(0)
	for n := int64(1); ; n++ {
		var k int64
		at := len(b)
		b, k, err = c.Append(b)
		size += k
		wrong, bad := errors.AsType[*client.LineError](err)
		switch {
		case errors.Is(err, io.EOF):
			if size > int64(len(text)) {
				err = fmt.Errorf("%d bytes of %d", size, len(text))
			} else {
				err = nil
			}
			return string(b), err
		case bad:
			b = append(b[:at], fmt.Sprintf("%d: %s\n", c.Line(n), wrong.Reason)...)
		case err != nil:
			return string(b), err
		}
	}
}

func TestRecords_BecomeJobs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text string
		o          Options
		want       string
	}{
		{"columns of the payload", "email,name\na@x.example,Ann\nb@x.example,\n", Options{}, `{"payload":{"email":"a@x.example","name":"Ann"}}
{"payload":{"email":"b@x.example","name":""}}
`},
		{"fields", "id,type,cost,run_at,n\n1,mail,5,2026-01-02T03:04:05Z,007\n2,,,,\n", Options{}, `{"id":"1","type":"mail","run_at":"2026-01-02T03:04:05Z","cost":5,"payload":{"n":"007"}}
{"id":"2","payload":{"n":""}}
`},
		{"a payload", "id,payload\n1,\"{\"\"a\"\": [1, \"\"<\"\"]}\"\n2,3\n", Options{}, `{"id":"1","payload":{"a":[1,"<"]}}
{"id":"2","payload":3}
`},
		{"another column", "no;name\n17;Ann\n", Options{Columns: map[string]string{"id": "no"}}, `{"id":"17","payload":{"no":"17","name":"Ann"}}
`},
		{"a column beside the payload", "no;payload\n17;1\n", Options{Columns: map[string]string{"id": "no"}}, `{"id":"17","payload":1}
`},
		{"another column for a field that has one", "id,key,a\n1,k,x\n", Options{Columns: map[string]string{"id": "key"}}, `{"id":"k","payload":{"id":"1","key":"k","a":"x"}}
`},
		{"Excel", "\ufeffname;town\r\n\"Ann; \"\"A\"\"\";K\u00f6ln\r\n", Options{}, `{"payload":{"name":"Ann; \"A\"","town":"Köln"}}
`},
		{"tabs", "a\tb,c\td\n1\t2\t\n", Options{}, "{\"payload\":{\"a\":\"1\",\"b,c\":\"2\",\"d\":\"\"}}\n"},
		{"a given delimiter", "a|b\n1|2,3\n", Options{Delimiter: '|'}, "{\"payload\":{\"a\":\"1\",\"b\":\"2,3\"}}\n"},
		{"a delimiter in quotes", "\"a;b;c\",d\n1,2\n", Options{}, "{\"payload\":{\"a;b;c\":\"1\",\"d\":\"2\"}}\n"},
		{"lines in cells", "a,b\n\"1\n2\",3\n\n4\n5,6\n7\n", Options{}, `{"payload":{"a":"1\n2","b":"3"}}
5: it has 1 cells, and the header has 2
{"payload":{"a":"5","b":"6"}}
7: it has 1 cells, and the header has 2
`},
		{"wrong cells", "cost,payload\nx,1\n1,{\n1,\n1,\xff\n9,9\n", Options{}, `2: column "cost": the cost "x" is not a whole number
3: column "payload" is not valid JSON: in JSON, text has quotes, and CSV writes each of them twice
4: column "payload" is not valid JSON: in JSON, text has quotes, and CSV writes each of them twice
5: column "payload": not valid UTF-8: convert the file, as with iconv -f WINDOWS-1252 -t UTF-8
{"cost":9,"payload":9}
`},
		{"no records", "a,b\n", Options{}, ""},
	} {
		if got, err := lines(row.text, row.o); got != row.want || err != nil {
			t.Errorf("%s: %v\n%swant\n%s", row.name, err, got, row.want)
		}
	}
}

func TestRecords_RefuseFile(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text string
		o          Options
		want       string
	}{
		{"empty", "", Options{}, "the file is empty"},
		{"UTF-16", "\xff\xfea\x00", Options{}, "UTF-16"},
		{"no name", "a,,c\n", Options{}, "column 2 has no name"},
		{"twice", "a, a\n", Options{}, `two columns have the name "a"`},
		{"not a field", "a\n", Options{Columns: map[string]string{"key": "a"}}, `"key" is no field`},
		{"no such column", "a,b\n", Options{Columns: map[string]string{"id": "c"}}, `no column "c" for the field id: the columns are a, b`},
		{"beside the payload", "payload,b\n", Options{}, `columns payload and "b" exclude each other`},
		{"not UTF-8", "\xe9,b\n", Options{}, "not valid UTF-8"},
		{"a quote in a cell", "a\n1\nx\"y\n", Options{}, "line 3, column 2"},
		{"a quote without an end", "a\n\"" + strings.Repeat("x\n", 4<<20), Options{}, "perhaps a quote is not closed"},
		{"a quote at the end", "a\n\"x", Options{}, "each quote in it twice"},
	} {
		if got, err := lines(row.text, row.o); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %.100s, %v; want %q", row.name, got, err, row.want)
		}
	}
}

// What encoding/csv writes comes back, whatever is in the cells.
func TestRecords_ReadWhatIsWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// encoding/csv writes no CR before LF back as it was, and no record of one empty cell.
		cell := rapid.StringMatching(`[a-z",; '\tß\n]{1,5}`)
		records := rapid.SliceOf(rapid.SliceOfN(cell, 2, 2)).Draw(t, "records")
		var file bytes.Buffer
		w := csv.NewWriter(&file)
		w.Comma = rapid.SampledFrom([]rune{',', ';', '\t'}).Draw(t, "comma")
		_ = w.WriteAll(append([][]string{{"one", "two"}}, records...))
		var want strings.Builder
		for _, r := range records {
			one, _ := json.Marshal(r[0])
			two, _ := json.Marshal(r[1])
			fmt.Fprintf(&want, "{\"payload\":{\"one\":%s,\"two\":%s}}\n", one, two)
		}
		if got, err := lines(file.String(), Options{}); got != want.String() || err != nil {
			t.Errorf("%v\n%swant\n%s", err, got, want.String())
		}
	})
}

func TestDecompress_ByFirstBytes(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("some text\n", 1000)
	var zipped, packed bytes.Buffer
	g := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(g, text)
	_ = g.Close()
	z, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	skippable := "\x5a\x2a\x4d\x18\x01\x00\x00\x00x"
	for _, row := range []struct {
		name, file, want string
		compressed       bool
		wrong            string
	}{
		{"a.ndjson", text, text, false, ""},
		{"-", "", "", false, ""},
		{"empty.gz", "", "", false, ""},
		{"-", "{}", "{}", false, ""},
		{"a.ndjson.gz", zipped.String(), text, true, ""},
		{"-", zipped.String(), text, true, ""},
		{"two", zipped.String() + zipped.String(), text + text, true, ""},
		{"a.csv.zst", packed.String(), text, true, ""},
		{"skippable", skippable + packed.String(), text, true, ""},
		{"a.GZ", text, "", false, "a.GZ is not compressed"},
		{"cut", zipped.String()[:40], "", true, "unexpected EOF"},
		{"cut", packed.String()[:packed.Len()-5], "", true, "unexpected EOF"},
	} {
		content, compressed, err := Decompress(iotest.OneByteReader(strings.NewReader(row.file)), row.name)
		got := ""
		if err == nil {
			var b []byte
			b, err = io.ReadAll(content)
			got = string(b)
			_ = content.Close()
		}
		if row.wrong == "" && (got != row.want || err != nil) || row.wrong != "" && (err == nil || !strings.Contains(err.Error(), row.wrong)) || compressed != row.compressed {
			t.Errorf("%s: %d bytes, compressed %v, %v", row.name, len(got), compressed, err)
		}
	}
}

func TestFormat_FollowsTheName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]Format{
		"a.csv": CSV, "a.CSV.gz": CSV, "dir.csv/a": NDJSON, "a.tsv.zst": TSV, "a.ndjson": NDJSON, "a.jsonl.gz": NDJSON, "-": NDJSON, "a.gz": NDJSON, "csv": NDJSON,
	} {
		if got := FormatOf(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func FuzzRecords(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "id,payload\n1,\"{\"\"a\"\":1}\"\n", "a;b\n\"x\ny\";z\n\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := lines(text, Options{})
		if err != nil {
			return
		}
		for line := range strings.Lines(got) {
			if strings.HasPrefix(line, "{") && !json.Valid([]byte(line)) {
				t.Errorf("%q: %q", text, line)
			}
		}
	})
}

// The sizes of the records add up to the file, with its header and its mark, so that progress ends at 100 %.
func TestRecords_CountWholeFile(t *testing.T) {
	for _, text := range []string{"id,to\na1,x\na2,y\n", "\ufeffid;to\r\na1;\"x\ny\"\r\n\r\na2;y"} {
		c, err := NewRecords(strings.NewReader(text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for err == nil {
			var size int64
			_, size, err = c.Append(nil)
			sum += size
		}
		if !errors.Is(err, io.EOF) || sum != int64(len(text)) {
			t.Errorf("%d bytes of %d, %v", sum, len(text), err)
		}
	}
}

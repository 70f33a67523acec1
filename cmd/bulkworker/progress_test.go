package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anteroom/anteroom/bulk/client"
)

func TestSeconds_ReadsAsDuration(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		seconds float64
		want    string
	}{
		{-1, "0s"}, {0, "0s"}, {0.2, "1s"}, {59, "59s"}, {60, "1m00s"}, {61.5, "1m02s"}, {3599.5, "1h00m"}, {5400, "1h30m"},
		{86400, "1d00h"}, {100 * 86400, "100d00h"}, {1e12, "ages"},
	} {
		if got := seconds(row.seconds); got != row.want {
			t.Errorf("%v s is %q; want %q", row.seconds, got, row.want)
		}
	}
}

func TestETA_ReadsAsRange(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		eta  client.ETA
		want string
	}{
		{client.ETA{Seconds: 30, Low: 24, High: 40}, "24s-40s"}, {client.ETA{Seconds: 1, Low: 1, High: 1}, "1s"},
		{client.ETA{Seconds: 1, Low: 0, High: 2}, "up to 2s"}, {client.ETA{}, "0s"},
	} {
		if got := etaOf(&row.eta); got != row.want {
			t.Errorf("%+v is %q; want %q", row.eta, got, row.want)
		}
	}
}

// life has the states of a group that a watcher sees.
var life = []*client.Group{
	{ID: "g", Status: client.Created, Total: 100},
	{ID: "g", Status: client.Running, Total: 200, Succeeded: 40, Failed: 7, Dead: 3, Rate: 12.345, Congestion: "moderate", ETA: &client.ETA{Seconds: 30, Low: 24, High: 40}},
	{ID: "g", Status: client.Running, Paused: true, Total: 200, Succeeded: 90, Failed: 7, Dead: 3},
	{ID: "g", Status: client.Completed, Total: 200, Succeeded: 190, Failed: 7, Dead: 3},
}

func TestProgress_AsLines(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	s := newScreen(&b)
	f := &following{screen: s}
	for _, g := range life {
		f.group(g)
		f.group(g) // nothing new is worth no line
	}
	s.end()
	want := `g CREATED, 0/100, 0/s, failed 0, dead 0, congestion none
g RUNNING, 50/200, 12.35/s, 24s-40s left, failed 7, dead 3, congestion moderate
g RUNNING (paused), 100/200, 0/s, failed 7, dead 3, congestion none
g COMPLETED: 190 succeeded, 7 failed, 3 dead, 0 cancelled
`
	// The end is written each time that it is seen, and a watcher sees it once.
	if got := b.String(); got != want+strings.SplitAfter(want, "\n")[3] {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestUpload_AsLines(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	s := newScreen(&b)
	u := newUploading(s, 1_000_000, func(sent client.Uploaded) int64 { return sent.Bytes })
	u.chunk(client.Uploaded{Lines: 10, Bytes: 250_000, Accepted: 9, Rejected: 1})
	s.note("the line %s", "broke")
	u.chunk(client.Uploaded{Lines: 20, Bytes: 500_000, Accepted: 19, Rejected: 1}) // too soon for another line
	u.end(client.Uploaded{Lines: 40, Bytes: 1000, Accepted: 38, Duplicates: 1, Rejected: 1})
	want := regexp.MustCompile(`^sent 25%, 250.0 kB of 1.0 MB, 10 lines, 1 rejected, [0-9.]+ [kMGT]?B/s(, \d+s left)?
the line broke
38 jobs are in, 1 were there already, 1 lines were rejected
$`)
	if got := b.String(); !want.MatchString(got) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	b.Reset()
	newUploading(newScreen(&b), -1, func(sent client.Uploaded) int64 { return sent.Bytes }).chunk(client.Uploaded{Lines: 10, Bytes: 999})
	if got := b.String(); !strings.HasPrefix(got, "sent 999 B, 10 lines, ") || strings.Contains(got, "left") {
		t.Errorf("of unknown size: %s", got)
	}
}

// A file is not a terminal.
// The first line of an upload that took 100 ms had "4.0 GB/s": time was counted from the first chunk that was sent.
func TestUpload_RateIsSinceBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		u := newUploading(newScreen(&b), 1_000_000, func(sent client.Uploaded) int64 { return sent.Bytes })
		time.Sleep(2 * time.Second)
		u.chunk(client.Uploaded{Lines: 10, Bytes: 250_000})
		if want := "sent 25%, 250.0 kB of 1.0 MB, 10 lines, 125.0 kB/s, 6s left\n"; b.String() != want {
			t.Errorf("got  %q\nwant %q", b.String(), want)
		}
	})
}

func TestScreen_OfFile(t *testing.T) {
	t.Parallel()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if s := newScreen(f); s.tty != nil {
		t.Error("taken for a terminal")
	}
}

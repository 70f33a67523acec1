package logs

import (
	"os"
	"strings"
	"testing"
	"time"
)

// While nobody reads the log, writers go on and lines that do not fit are counted. The next reader gets a line with the count.
func TestQueue_DoesNotWaitForItsReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	q := NewQueue("text", w)
	go q.Run()
	line := strings.Repeat("x", 1023) + "\n"
	for range 3 * queueSize / len(line) {
		if n, err := q.Write([]byte(line)); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	lost := q.Dropped()
	if lost < queueSize/int64(len(line)) {
		t.Fatalf("%d lines are lost, with a third of them as room", lost)
	}
	q.Stop(time.Millisecond) // does not wait for ever either
	read := make(chan int)
	told := make(chan bool, 1)
	go func() {
		n, all := 0, ""
		b := make([]byte, 1<<20)
		for {
			m, err := r.Read(b)
			n += strings.Count(string(b[:m]), "\n")
			all = all[max(0, len(all)-1000):] + string(b[:m])
			if err != nil {
				break
			}
		}
		told <- strings.Contains(all, `level=WARN msg="log lines were dropped: the log was not read in time" lines=`)
		read <- n
	}()
	<-q.ended
	w.Close()
	if !<-told {
		t.Error("it does not tell what was lost")
	}
	if n, want := <-read, 3*queueSize/len(line)-int(lost)+1; n != want {
		t.Errorf("%d lines came, want %d", n, want)
	}
}

func TestQueue_WritesAllBeforeItStops(t *testing.T) {
	var b strings.Builder
	q := NewQueue("json", &b)
	for range 100 {
		q.Write([]byte("line\n"))
	}
	go q.Run()
	q.Stop(time.Minute)
	if n := strings.Count(b.String(), "line\n"); n != 100 || q.Dropped() != 0 {
		t.Errorf("%d lines, %d lost", n, q.Dropped())
	}
}

package load

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// streamRoom is a room in memory. Each stream ends after its first event; opened again, it sends the event admitted. With the fault
// "silent" a stream sends no event, with "lost" it sends that the ticket has expired.
func streamRoom(t *testing.T, fault string) string {
	var serial atomic.Int64
	var opened sync.Map // token → true
	mux := http.NewServeMux()
	mux.HandleFunc("POST /.waiting-room/default/tickets", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(201)
		fmt.Fprintf(w, `{"state":"waiting","token":%q}`, token(fmt.Sprint(serial.Add(1)), serial.Load()))
	})
	mux.HandleFunc("POST /.waiting-room/default/claim", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"state":"admitted","pass":"p"}`)
	})
	mux.HandleFunc("GET /.waiting-room/default/status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"state":"waiting"}`)
	})
	mux.HandleFunc("GET /.waiting-room/default/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Connection", "close")
		say := func(text string) {
			fmt.Fprint(w, text)
			w.(http.Flusher).Flush()
		}
		say("retry: 1\n\n")
		if fault == "silent" {
			<-r.Context().Done()
			return
		}
		say("event: status\ndata: {\"state\":\"waiting\",\"position\":3}\n\n")
		if _, again := opened.LoadOrStore(r.Header.Get("X-Waiting-Room-Token"), true); !again && fault != "lost" {
			return // it is opened again
		}
		if fault == "lost" {
			say("event: status\ndata: {\"state\":\"expired\",\"reason\":\"late\"}\n\n")
			return
		}
		say("event: status\ndata: {\"state\":\"waiting\",\"position\":4}\n\n")
		say(fmt.Sprintf("event: admitted\ndata: {\"state\":\"admitted\",\"admitted_at\":%q}\n\n", time.Now().UTC().Format(time.RFC3339Nano)))
	})
	s := httptest.NewUnstartedServer(mux)
	s.Config.DisableGeneralOptionsHandler = true
	s.Start()
	t.Cleanup(s.CloseClientConnections)
	t.Cleanup(s.Close)
	return s.URL
}

func TestStreams_FindBrokenPromises(t *testing.T) {
	for _, row := range []struct {
		fault string
		code  string // of the error; empty: the promises were kept
		is    func(*StreamsReport) bool
	}{
		{"", "", func(r *StreamsReport) bool {
			return r.Admitted == 6 && r.Ended == 6 && r.MovedBehind == 6 && r.First.Count == 6 && r.Turns.Count == 6
		}},
		{"lost", ErrBroken.Error(), func(r *StreamsReport) bool { return r.Lost["expired late"] == 6 && r.Admitted == 0 }},
		{"silent", ErrBroken.Error(), func(r *StreamsReport) bool { return r.Silent == 6 }},
	} {
		t.Run("fault "+row.fault, func(t *testing.T) {
			var out strings.Builder
			cmd := Command()
			cmd.SetOut(&out)
			hold := "20s"
			if row.fault != "" {
				hold = "3s"
			}
			cmd.SetArgs([]string{"streams", "--url", streamRoom(t, row.fault), "--streams", "6", "--hold", hold, "--open-wait", "2s", "--connections", "2"})
			err := cmd.ExecuteContext(t.Context())
			if (err == nil) != (row.code == "") || err != nil && err.Error() != row.code {
				t.Errorf("%v, want %q", err, row.code)
			}
			var r StreamsReport
			if err := json.Unmarshal([]byte(out.String()), &r); err != nil || !row.is(&r) || r.Kept != (row.code == "") {
				t.Errorf("%v: %s", err, out.String())
			}
		})
	}
}

package console

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/gateway/console/signin/signintest"
)

// openStream opens a stream with a token, and returns it after its first event.
func openStream(t *testing.T, s *httptest.Server, token string) io.Reader {
	t.Helper()
	return openStreamWith(t, s, "Authorization", "Bearer "+token)
}

// openStreamWith opens a stream with a header field.
func openStreamWith(t *testing.T, s *httptest.Server, field, value string) io.Reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/admin/v1/stream", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(field, value)
	w, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Body.Close() })
	body := bufio.NewReader(w.Body)
	if line, err := body.ReadString('\n'); w.StatusCode != 200 || err != nil {
		t.Fatalf("status %d, line %q, %v", w.StatusCode, line, err)
	}
	return body
}

// A stream ends when a reload has removed its token, and leaves out the rooms that the token may not read any more.
func TestStream_FollowsReloadOfTokens(t *testing.T) {
	b := newBench(t)
	s := httptest.NewServer(b.handler)
	t.Cleanup(s.Close) // after the streams are closed
	removed, narrowed := openStream(t, s, writeToken), openStream(t, s, readToken)
	if err := b.console.SetTokens([]Token{{Name: "wall", Token: readToken, Role: Read, Rooms: []string{"vip"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, removed); err != nil {
		t.Errorf("the stream of a removed token did not end: %v", err)
	}
	for lines := bufio.NewScanner(narrowed); ; {
		if !lines.Scan() {
			t.Fatalf("the stream still has both rooms: %v", lines.Err())
		}
		if line := lines.Text(); strings.Contains(line, `"id":"vip"`) && !strings.Contains(line, `"id":"sale"`) {
			break
		}
	}
}

// One person cannot use up the streams of all.
func TestStream_LeavesStreamsToOthers(t *testing.T) {
	b := newBench(t)
	s := httptest.NewServer(b.handler)
	t.Cleanup(s.Close) // after the streams are closed
	for range streamsOne {
		openStream(t, s, readToken)
	}
	var leave context.CancelFunc
	b.leaving, leave = context.WithCancel(t.Context())
	leave() // a stream that is allowed ends at once
	wantCode(t, b.ask("GET", "/admin/v1/stream", "", "Authorization: Bearer "+readToken), 503, "too_many_streams")
	openStream(t, s, writeToken)
}

// An open stream keeps its session in use, however long ago its browser sent the last request. It ends when the session does, or when the
// person has no role any more.
func TestStream_FollowsSession(t *testing.T) {
	b, p := newSignInBench(t)
	s := httptest.NewServer(b.handler)
	t.Cleanup(s.Close) // after the streams are closed
	ann, bob := b.newTab(), b.newTab()
	ann.signIn(p, signintest.Ann)
	bob.signIn(p, signintest.Bob)
	cookie := func(c *tab) string {
		return c.cookies["__Host-anteroom_session"].Name + "=" + c.cookies["__Host-anteroom_session"].Value
	}
	idle := cookie(ann)
	lines := bufio.NewScanner(openStreamWith(t, s, "Cookie", idle))
	other := openStreamWith(t, s, "Cookie", cookie(bob))

	began := b.clock.now()
	b.set(began.Add(31 * time.Minute))
	if got := b.ask("GET", "/admin/v1/me", "", "Authorization:", "Sec-Fetch-Site: same-origin", "Cookie: "+idle).Code; got != 401 {
		t.Fatalf("a request of an idle session has the status %d", got)
	}
	for checks := 0; checks < 3; { // the first of them may have been sent before
		if !lines.Scan() {
			t.Fatalf("the stream of a session in use has ended: %v", lines.Err())
		}
		if lines.Text() == "event: fleet" {
			checks++
		}
	}

	fewer := signInOptions(p)
	fewer.Rules = fewer.Rules[:2] // without that of bob
	if err := b.console.o.SignIn.Reload(fewer); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, other); err != nil {
		t.Errorf("the stream of a person without a role did not end: %v", err)
	}
	b.set(began.Add(12 * time.Hour))
	for lines.Scan() { // until it ends
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the stream of a session that is over did not end: %v", err)
	}
}

package rig

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSite_ServesEachKindOfRequest(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(Site))
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	get := func(resp *http.Response, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp.Status, err)
		}
		return string(body)
	}
	url := s.URL
	if got := get(http.Post(url, "text/plain", strings.NewReader("hello"))); got != "5 a430d84680aabd0b" { // FNV-1a of hello
		t.Errorf("upload: %q", got)
	}
	if n := len(get(http.Get(url + "/x?bytes=100000"))); n != 100_000 {
		t.Errorf("long response: %d bytes", n)
	}
	if n := len(get(http.Get(url))); n != 1024 {
		t.Errorf("page: %d bytes", n)
	}
	conn, err := Upgrade(s.Listener.Addr().String(), "/", "", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "ping"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "ping" {
		t.Errorf("echo %q, %v", got, err)
	}
}

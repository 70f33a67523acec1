package gateway

import (
	"regexp"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
)

func TestAccessLog_RecordsMalformedRequest(t *testing.T) {
	log := &syncBuffer{}
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Access: Access{Output: log, Sample: 1},
	})
	b.call("GET /", "Bad Name: x").code(t, 400)
	b.stop()
	line := regexp.MustCompile(`"(time|seconds)":("[^"]*"|[^,]*),`).ReplaceAllString(log.String(), "")
	if want := `{"msg":"access","ip":"127.0.0.1","method":"","host":"","target":"","status":400,"bytes":156,"outcome":"refused","user_agent":""}` + "\n"; line != want {
		t.Errorf("%swant\n%s", line, want)
	}
}

func TestLog_OriginFaultIsOneLine(t *testing.T) {
	s := newSite(t, "shop", nil)
	s.Close()
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{Origins: []proxy.Config{originAt("shop", s.URL)}})
	b.call("GET /", asJSON).code(t, 502)
	if log := b.logs.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, `"kind":"connect"`) {
		t.Errorf("%s", log)
	}
}

package main

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/anteroom/anteroom/internal/config/configtest"
	"github.com/anteroom/anteroom/internal/freeport"
	"github.com/anteroom/anteroom/internal/redistest"
)

// The settings that serve itself uses: sockets, log, shutdown and where the store is.
func TestServe_AnswersChecks(t *testing.T) {
	checks := freeport.Address(t)
	stderr, stop := configtest.Serve(t, newRoot(nil), `
listen: "127.0.0.1:0"
admin: {listen: "127.0.0.1:0"}
check: {listen: "`+checks+`", trusted: [127.0.0.1/32]}
store: {dir: "`+t.TempDir()+`"}
`+usual)
	configtest.Eventually(t, "the program answers checks", func() bool { return strings.Contains(stderr.String(), `"check listening"`) })
	q, err := http.NewRequest("GET", "http://"+checks+"/.waiting-room/check", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("X-Original-Method", "GET")
	q.Header.Set("X-Original-URI", "/")
	var answer *http.Response
	configtest.Eventually(t, "the room is known", func() bool {
		if answer, err = http.DefaultClient.Do(q); err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode == 200
	})
	if answer.Header.Get("X-Waiting-Room") != "pass" {
		t.Errorf("a check of a free room: %d %v", answer.StatusCode, answer.Header)
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
}

func TestServe_UsesTheSettingsOfItsProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "own")
	visitors, operators := freeport.Address(t), freeport.Address(t)
	stderr, stop := configtest.Serve(t, newRoot(nil), `
listen: "`+visitors+`"
admin: {listen: "`+operators+`"}
log: {format: text}
shutdown_timeout: 1500ms
store: {dir: "`+dir+`"}
`+usual)
	configtest.Eventually(t, "the program listens", func() bool { return strings.Contains(stderr.String(), `msg="admin listening"`) })
	configtest.Eventually(t, "the program listens", func() bool { return strings.Contains(stderr.String(), "msg=listening") })
	for _, file := range []string{"keys.json", "appendonlydir"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Errorf("store.dir: %v", err)
		}
	}
	answer, err := http.Get("http://" + visitors + "/.waiting-room/sale/access-line")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	configtest.Eventually(t, "log.access: the request is logged", func() bool { return strings.Contains(stderr.String(), "/access-line") })
	log := stop()
	for setting, want := range map[string]string{
		"listen": `msg=listening addr=` + visitors, "admin.listen": `msg="admin listening" addr=` + operators, "shutdown_timeout": `shutdown_timeout=1\.5s`,
	} {
		if !regexp.MustCompile(want).MatchString(log) {
			t.Errorf("%s: no %s in\n%s", setting, want, log)
		}
	}

	server, unused := redistest.Server(t), filepath.Join(t.TempDir(), "unused")
	_, stop = configtest.Serve(t, newRoot(nil), `
listen: "127.0.0.1:0"
admin: {listen: "127.0.0.1:0"}
log: {level: error}
store: {url: "`+server.URL()+`", dir: "`+unused+`"}
`+usual)
	configtest.Eventually(t, "the program uses store.url", func() bool {
		return strings.Count(server.Client().ClientList(t.Context()).Val(), "\n") > 1
	})
	if log := stop(); strings.Contains(log, `"INFO"`) || strings.Contains(log, `"WARN"`) {
		t.Errorf("with log.level error:\n%s", log)
	}
	if _, err := os.Stat(unused); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("store.dir is used beside store.url: %v", err)
	}
}

func TestServe_AnswersChecksOverGRPC(t *testing.T) {
	checks := freeport.Address(t)
	stderr, stop := configtest.Serve(t, newRoot(nil), `
listen: "127.0.0.1:0"
admin: {listen: "127.0.0.1:0"}
check: {grpc: "`+checks+`", trusted: [127.0.0.1/32]}
store: {dir: "`+t.TempDir()+`"}
`+usual)
	configtest.Eventually(t, "the program answers checks", func() bool { return strings.Contains(stderr.String(), `"gRPC check listening"`) })
	conn, err := grpc.NewClient(checks, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var answer *authv3.CheckResponse
	configtest.Eventually(t, "the room is known", func() bool {
		answer, err = authv3.NewAuthorizationClient(conn).Check(t.Context(), &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
			Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{Method: "GET", Path: "/", Host: "shop.test"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetOkResponse() != nil
	})
	if state := answer.DynamicMetadata.Fields["state"].GetStringValue(); state != "pass" {
		t.Errorf("a check of a free room: %v", answer)
	}
	stop() // also with the connection of the proxy
}

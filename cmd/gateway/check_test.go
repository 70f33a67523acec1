package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/config/configtest"
)

// check-config refuses what serve refuses, with the same words, and nothing else.
func TestCheckConfig_RefusesWhatServeRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"page.html": "<meta http-equiv=refresh content={{.Reload}}><h1>{{.Heading}}</h1>", "still.html": "<h1>{{.Heading}}</h1>", "broken.pem": "no certificate", "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	room := func(settings string) string {
		return "origins: [{id: shop, servers: [\"http://127.0.0.1:9\"]}]\nrooms: [{id: sale, " + settings + "}]"
	}
	for _, row := range []struct{ name, config, problem string }{
		{"nothing is wrong", room("page: {template_file: $DIR/page.html}"), ""},
		{"a template without the guard's script", room("page: {template_file: $DIR/page.html}, guard: {proof_of_work: auto}"), "rooms.sale.page: page.template_file"},
		{"a template that never asks again", room("page: {template_file: $DIR/still.html}"), "rooms[0].page.template_file: "},
		{"a template that is not there", room("page: {template_file: $DIR/none.html}"), "rooms[0].page.template_file: "},
		{"a certificate that is none", room("paths: [/]") + "\ntls: {cert_file: $DIR/broken.pem, key_file: $DIR/broken.pem}", "tls.cert_file: "},
		{"an authority that is none", strings.Replace(room("paths: [/]"), "servers:", "tls: {ca_file: $DIR/broken.pem}, servers:", 1), "origins[0].tls.ca_file: "},
		{"an operator's token that is empty", room("paths: [/]") + "\nadmin: {tokens: [{name: ann, token_file: $DIR/empty}]}", "admin.tokens[0].token_file: "},
		{"two rooms of one id", room("paths: [/a]}, {id: sale, paths: [/b]"), "rooms[1].id: "},
		{"two origins of one id", strings.Replace(room("paths: [/]"), "origins: [", "origins: [{id: shop, servers: [\"http://127.0.0.1:10\"]}, ", 1), "origins[1].id: "},
		{"an expression that does not compile", room(`paths: ["~("]`), "rooms[0].paths[0]: "},
		{"a header that names the account and something else", room("identity: {header: cookie, one_place: true}"), "rooms[0].identity.header: "},
		{"keys at no address", room("identity: {jwt_claim: sub, jwks_url: nowhere, one_place: true}"), "rooms[0].identity.jwks_url: "},
		{"a model that is none", room("eta: {estimator: model, model_file: $DIR/page.html}"), "rooms[0].eta.model_file: "},
		{"one port for two sockets", room("paths: [/]") + "\nlisten: \"127.0.0.1:9090\"\nadmin: {listen: \"127.0.0.1:9090\"}", "admin.listen: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			text := strings.ReplaceAll(row.config, "$DIR", dir)
			if !strings.Contains(text, "listen:") {
				text += "\nlisten: \"127.0.0.1:0\"\nadmin: {listen: \"127.0.0.1:0\"}"
			}
			if strings.Count(text, "admin:") > 1 {
				text = strings.Replace(text, "\nadmin: {listen: \"127.0.0.1:0\"}", "", 1)
			}
			text += "\nstore: {dir: " + t.TempDir() + "}\n"
			file := filepath.Join(t.TempDir(), "gateway.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			run := func(args ...string) string {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				root, out := newRoot(nil), &configtest.Output{}
				root.SilenceUsage, root.SilenceErrors = true, true
				root.SetArgs(append(args, "--config", file))
				root.SetOut(out)
				root.SetErr(out)
				ended := make(chan error, 1)
				go func() { ended <- root.ExecuteContext(ctx) }()
				var err error
				if args[0] == "serve" && row.problem == "" {
					configtest.Eventually(t, "it listens", func() bool { return strings.Contains(out.String(), `"msg":"listening"`) })
					cancel()
				}
				if err = <-ended; err == nil {
					return ""
				}
				var problems *config.Problems
				if !errors.As(err, &problems) {
					t.Errorf("%s: not a list of problems: %v", args[0], err)
				}
				return err.Error()
			}
			checked, served := run("check-config"), run("serve")
			if checked != served || !strings.HasPrefix(checked, row.problem) || (checked == "") != (row.problem == "") {
				t.Errorf("check-config: %q\nserve: %q\nwant %q", checked, served, row.problem)
			}
		})
	}
}

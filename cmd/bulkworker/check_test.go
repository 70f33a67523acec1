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
	for name, text := range map[string]string{"secret": "Zk3vQ9xW2mLr8TbN5cYh", "text": "no JSON", "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	webhook := func(settings string) string {
		return "processors: {webhook: {url: \"http://127.0.0.1:9/jobs\"" + settings + "}}"
	}
	for _, row := range []struct{ name, config, problem string }{
		{"nothing is wrong", webhook(", secret_file: $DIR/secret"), ""},
		{"nothing would run", "", ""},
		{"workers that grow", webhook("") + "\nworker: {count: 2, min: 1, max: 9}", ""},
		{"no workers", webhook("") + "\nworker: {count: 0}", ""},
		{"fewer workers than none", "worker: {count: -1}", "worker.count: "},
		{"more workers at least than at most", "worker: {min: 9, max: 2}", "worker.m"},
		{"a lease shorter than a job", "worker: {lease: 1ms}", "worker.lease: "},
		{"a limiter that there is not", "limiter: guess", "limiter: "},
		{"an order that there is not", "fair_queue: {policy: guess}", "fair_queue.policy: "},
		{"durability that there is not", "durability: tape", "durability: "},
		{"a lowest rate over the highest", "adaptive: {enabled: true, min_rate: 20000}", "adaptive.min_rate: "},
		{"a secret that is empty", webhook(", secret_file: $DIR/empty"), "processors.webhook.secret_file: "},
		{"a secret that is not there", webhook(", secret_file: $DIR/none"), "processors.webhook.secret_file: "},
		{"a header of the worker's own", webhook(", headers: {X-Bulk-Job: x}"), "processors.webhook.headers: "},
		{"batches", webhook(", batching: {max: 50, wait: 1s}"), ""},
		{"batches that are too large", webhook(", batching: {max: 501}"), "processors.webhook.batching.max: "},
		{"a wait for batches that there are not", webhook(", batching: {wait: 1s}"), "processors.webhook.batching.wait: "},
		{"batches of mails", "processors: {email: {smtp: \"smtp://127.0.0.1\", from: a@b.example, batching: {max: 5}}}", "processors.email.batching: "},
		{"a URL that leads nowhere", strings.Replace(webhook(""), "http:", "ftp:", 1), "processors.webhook.url: "},
		{"a type of no kind", "processors: {invoice: {url: \"http://h\"}}", "processors.invoice.kind: "},
		{"mail from nobody", "processors: {email: {smtp: \"smtp://127.0.0.1\", from: nobody}}", "processors.email.from: "},
		{"a service account that is none", "processors: {push: {fcm: {credentials_file: $DIR/text}}}", "processors.push.fcm.credentials_file: "},
		{"keys of web push that are none", "processors: {push: {webpush: {vapid_key_file: $DIR/text}}}", "processors.push.webpush.vapid_key_file: "},
		{"a host with a scheme", "callbacks: {allow: [\"http://hooks.internal\"]}", "callbacks.allow[0]: "},
		{"a secret of callbacks that is empty", "callbacks: {secret_file: $DIR/empty}", "callbacks.secret_file: "},
		{"an API token that is not there", "api_tokens: [{name: ann, tenants: [acme], token_file: $DIR/none}]", "api_tokens[0].token_file: "},
		{"two API tokens of one name", "api_tokens: [{name: ann, tenants: [a], token_file: $DIR/secret}, {name: ann, tenants: [b], token_file: $DIR/secret}]", "api_tokens[1]."},
		{"a worker's token that is not there", "admin: {token: Zk3vQ9xW2mLr8TbN5cYh}\nworker_tokens: [{name: ann, token_file: $DIR/none}]", "worker_tokens[0].token_file: "},
		{"a worker's type that is none", "admin: {token: Zk3vQ9xW2mLr8TbN5cYx}\nworker_tokens: [{name: ann, types: [a b], token_file: $DIR/secret}]", "worker_tokens[0].types[0]: "},
		{"no tokens but those of workers", "worker_tokens: [{name: ann, token_file: $DIR/secret}]", "worker_tokens: "},
		{"jobs that are pulled", "processors: {thumb: {kind: pull, rate: 5, retry: {max: 2}}}", ""},
		{"pulled jobs with a time-out of their own", "processors: {thumb: {kind: pull, timeout: 20s}}", "processors.thumb.timeout: "},
		{"pulled jobs with an address", "processors: {thumb: {kind: pull, url: \"http://h\"}}", "processors.thumb.url: "},
		{"an open socket without a token", "listen: \":0\"", "admin.token: "},
		{"a store that speaks another tongue", "store: {url: \"http://127.0.0.1\"}", "store.url: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			text := strings.ReplaceAll(row.config, "$DIR", dir)
			if !strings.Contains(text, "listen:") {
				text += "\nlisten: \"127.0.0.1:0\""
			}
			if !strings.Contains(text, "store:") {
				text += "\nstore: {dir: " + t.TempDir() + "}"
			}
			file := filepath.Join(t.TempDir(), "bulkworker.yaml")
			if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
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
				if args[0] == "serve" && row.problem == "" {
					configtest.Eventually(t, "it listens", func() bool { return strings.Contains(out.String(), `"msg":"listening"`) })
					cancel()
				}
				err := <-ended
				if err == nil {
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

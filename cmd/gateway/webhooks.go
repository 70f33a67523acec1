package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/outbox"
	"github.com/anteroom/anteroom/gateway"
	"github.com/anteroom/anteroom/gateway/console"
	"github.com/anteroom/anteroom/gateway/webhook"
	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/lifecycle"
	"github.com/anteroom/anteroom/internal/settings"
	"github.com/anteroom/anteroom/internal/tracing"
)

// checkWebhooks checks what package webhook knows of webhooks: types of events, secrets and addresses.
func checkWebhooks(cfg *config.Config) (problems []config.Problem) {
	add := func(i int, setting, format string, args ...any) {
		problems = append(problems, config.Problem{Path: settings.Element("webhooks", i) + "." + setting, Message: fmt.Sprintf(format, args...)})
	}
	for i := range cfg.Webhooks {
		w := &cfg.Webhooks[i]
		for _, e := range w.Events {
			if !slices.Contains(webhook.Types(), e) {
				add(i, "events", "%q is not an event; use %s", settings.Clip(e), strings.Join(webhook.Types(), ", "))
			}
		}
		if w.SecretFile == "" {
			continue
		}
		text, err := w.Secrets()
		if err != nil {
			continue // Validate reports it
		}
		if _, err := webhook.ParseSecrets(text); err != nil {
			add(i, "secret_file", "%q %v", w.SecretFile, err)
		}
		if err := webhook.CheckURL(w.URL, w.AllowPrivate); err != nil {
			add(i, "url", "%v", err)
		}
	}
	return problems
}

// endpoints returns the endpoints of the configured webhooks.
func endpoints(cfg *config.Config) ([]webhook.Endpoint, error) {
	list := make([]webhook.Endpoint, 0, len(cfg.Webhooks))
	for i := range cfg.Webhooks {
		w := &cfg.Webhooks[i]
		text, err := w.Secrets()
		var secrets []webhook.Secret
		if err == nil {
			secrets, err = webhook.ParseSecrets(text)
		}
		if err != nil {
			return nil, fmt.Errorf("webhooks.%s.secret_file: %q %w", w.Name, w.SecretFile, err)
		}
		list = append(list, webhook.Endpoint{Name: w.Name, URL: w.URL, Secrets: secrets, Events: w.Events, Rooms: w.Rooms, AllowPrivate: w.AllowPrivate})
	}
	return list, nil
}

// webhooks sends the events of the rooms.
type webhooks struct {
	*webhook.Dispatcher
	queue *outbox.Queue
}

func newWebhooks(cfg *config.Config, g *gateway.Gateway, core *admission.Core, registry prometheus.Registerer, log *slog.Logger) (*webhooks, error) {
	queue := outbox.New(outbox.Options{Run: admission.ScriptsOf(core), Prefix: cfg.Store.Prefix})
	w := &webhooks{queue: queue, Dispatcher: webhook.New(webhook.Options{
		Queue: queue, Gateway: admission.GatewayOf(core), Rooms: func() []webhook.Room { return webhookRooms(g) }, Health: core.OriginHealth,
		Tracer:  func() *tracing.Tracer { return gateway.TracerOf(g) },
		Metrics: webhook.NewMetrics(registry), Log: log,
	})}
	return w, w.set(cfg)
}

// set puts the webhooks of a configuration in force.
func (w *webhooks) set(cfg *config.Config) error {
	list, err := endpoints(cfg)
	if err != nil {
		return err
	}
	return w.SetEndpoints(list)
}

// webhookRooms returns the rooms as this gateway sees them.
func webhookRooms(g *gateway.Gateway) []webhook.Room {
	views := g.Views()
	rooms := make([]webhook.Room, len(views))
	for i := range views {
		v := &views[i]
		rooms[i] = webhook.Room{
			ID: v.Queue.ID(), Snapshot: v.Queue.Snapshot(), Up: v.Queue.Reachable(), Now: v.Queue.RedisNow(),
			Events: slices.Collect(v.Queue.Scheduled().Plan.All()), Origin: v.Origin, MaxErrorRate: v.File.Adaptive.MaxErrorRate, SessionEnds: v.Queue.SessionEnds,
		}
	}
	return rooms
}

// report returns the state of the webhooks for the console.
func (w *webhooks) report(ctx context.Context, dead int) (console.Webhooks, error) {
	r, err := w.queue.Read(ctx, dead)
	if err != nil {
		return console.Webhooks{}, err
	}
	report := console.Webhooks{Sender: r.Holder}
	for _, e := range w.Endpoints() {
		c := r.Counts[e.Name]
		report.List = append(report.List, console.Webhook{
			Name: e.Name, Host: e.Host(), Events: e.Events, Rooms: e.Rooms,
			Pending: c.Pending, Delivered: c.Delivered, Dead: c.Dead, Dropped: c.Dropped,
		})
	}
	for _, l := range r.Dead {
		report.Dead = append(report.Dead, console.DeadEvent{
			Webhook: l.Endpoint, ID: l.ID, QueuedAt: l.Since, At: l.At, Tries: l.Tries, Error: l.Error, Body: []byte(l.Body),
		})
	}
	return report, nil
}

// addWebhooks sends events until the program ends. What it has not sent stays in the store.
func addWebhooks(parts *lifecycle.Group, w *webhooks) {
	ctx, cancel := context.WithCancel(context.Background())
	parts.Add(func() error { return w.Run(ctx) }, cancel)
}

func newWebhook(load cli.Loader[*config.Config]) *cobra.Command {
	return cli.NewGroup("webhook", "Webhooks", newWebhookTest(load))
}

func newWebhookTest(load cli.Loader[*config.Config]) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Send the event webhook.test once and print the response",
		Long: `test sends webhook.test to one of the configured webhooks, or to any URL, signed as other events are. It does not use
the store and does not try again. It exits with 1 unless the response is 2xx.

    gateway webhook test --config gateway.yaml --name shop
    gateway webhook test --url https://hooks.example.com/anteroom --secret-file webhook.secret`,
		Args: cli.NoArgs,
	}
	settings := cli.AddSettings(cmd, nil)
	name := cmd.Flags().String("name", "", "`NAME` of the webhook; not needed where the configuration has one")
	url := cmd.Flags().String("url", "", "`URL` to send to, instead of a configured webhook")
	secretFile := cmd.Flags().String("secret-file", "", "`FILE` with the secrets for --url")
	private := cmd.Flags().Bool("allow-private", false, "allow --url to have a private address")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var e webhook.Endpoint
		var err error
		if *url != "" {
			e, err = urlEndpoint(*name, *url, *secretFile, *private)
		} else if *secretFile != "" || *private {
			return &cli.UsageError{Err: fmt.Errorf("--secret-file and --allow-private belong to --url")}
		} else {
			cfg, loadErr := cli.Load(cmd, settings, load)
			if loadErr != nil {
				return loadErr
			}
			e, err = namedEndpoint(cfg, *name)
		}
		if err != nil {
			return err
		}
		id, answer, err := webhook.SendTest(cmd.Context(), e)
		if answer != nil {
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s %d %s\n", id, answer.Status, strings.TrimSpace(string(answer.Body)))
		}
		return err
	}
	return cmd
}

func urlEndpoint(name, url, secretFile string, private bool) (webhook.Endpoint, error) {
	if name != "" {
		return webhook.Endpoint{}, &cli.UsageError{Err: fmt.Errorf("--name and --url exclude each other")}
	}
	if secretFile == "" {
		return webhook.Endpoint{}, &cli.UsageError{Err: fmt.Errorf("--url needs --secret-file; make one with: echo whsec_$(openssl rand -base64 32) > webhook.secret")}
	}
	if err := webhook.CheckURL(url, private); err != nil {
		return webhook.Endpoint{}, &cli.UsageError{Err: fmt.Errorf("--url: %w", err)}
	}
	text, err := (&config.Webhook{SecretFile: secretFile}).Secrets()
	var secrets []webhook.Secret
	if err == nil {
		secrets, err = webhook.ParseSecrets(text)
	}
	if err != nil {
		return webhook.Endpoint{}, fmt.Errorf("--secret-file: %w", err)
	}
	return webhook.Endpoint{Name: "test", URL: url, Secrets: secrets, AllowPrivate: private}, nil
}

func namedEndpoint(cfg *config.Config, name string) (webhook.Endpoint, error) {
	list, err := endpoints(cfg)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	if len(list) == 0 {
		return webhook.Endpoint{}, &cli.UsageError{Err: fmt.Errorf("the configuration has no webhooks; add one to webhooks, or use --url")}
	}
	var names []string
	for _, e := range list {
		if e.Name == name || name == "" && len(list) == 1 {
			return e, nil
		}
		names = append(names, e.Name)
	}
	return webhook.Endpoint{}, &cli.UsageError{Err: fmt.Errorf("--name %q is not a webhook of the configuration; use %s", cmp.Or(name, ""), strings.Join(names, ", "))}
}

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/gateway"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/gateway/console"
	"github.com/anteroom/anteroom/gateway/console/signin"
	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/gateway/permit"
	"github.com/anteroom/anteroom/internal/certs"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/lifecycle"
	"github.com/anteroom/anteroom/internal/ophttp"
	"github.com/anteroom/anteroom/internal/tracing"
)

// operatorOptions are the options of the operators' side that the configuration determines.
type operatorOptions struct {
	Listen    string
	Tokens    []console.Token
	TwoPerson []string
	TLS       certs.Files
	SignIn    signin.Options // without an Issuer nobody signs in
}

func newOperatorOptions(cfg *config.Config) (operatorOptions, error) {
	bearers, err := cfg.Bearers()
	if err != nil {
		return operatorOptions{}, err
	}
	o := operatorOptions{Listen: cfg.Admin.Listen, TwoPerson: cfg.Admin.TwoPerson, TLS: certs.Files(cfg.Admin.TLS), Tokens: make([]console.Token, 0, len(bearers))}
	for _, b := range bearers {
		o.Tokens = append(o.Tokens, console.Token{Name: b.Name, Token: b.Token, Role: access.Role(b.Role), Rooms: b.Rooms})
	}
	p := &cfg.Admin.OIDC
	if p.Issuer == "" {
		return o, nil
	}
	secret, err := p.ClientSecret()
	if err != nil {
		return o, fmt.Errorf("admin.oidc.client_secret_file: %w", err)
	}
	o.SignIn = signin.Options{
		Issuer: p.Issuer, ClientID: p.ClientID, ClientSecret: secret, RedirectURL: p.RedirectURL, Scopes: p.Scopes, Idle: p.Idle, Session: p.Session,
	}
	for _, rule := range p.Roles {
		o.SignIn.Rules = append(o.SignIn.Rules, signin.Rule{Claim: rule.Claim, Value: rule.Value, Grant: access.Grant{Role: access.Role(rule.Role), Rooms: rule.Rooms}})
	}
	return o, nil
}

// operators is the operators' side of the program.
type operators struct {
	console *console.Console
	signIn  *signin.SignIn // nil: nobody signs in
	hooks   *webhooks
	tls     atomic.Pointer[tls.Config]
	log     *slog.Logger
}

func newOperators(cfg *config.Config, g *gateway.Gateway, ready func() bool, core *admission.Core, hooks *webhooks, insight console.Insight, registry *prometheus.Registry, log *slog.Logger) (*operators, error) {
	o, err := newOperatorOptions(cfg)
	if err != nil {
		return nil, err
	}
	s := &operators{hooks: hooks, log: log}
	certificates, err := o.TLS.LoadFor("admin.tls")
	if err != nil {
		return nil, err
	}
	s.tls.Store(certificates)
	if o.SignIn.Issuer != "" {
		if s.signIn, err = signin.New(o.SignIn, signin.Tools{Log: log}); err != nil {
			return nil, err
		}
	}
	s.console, err = console.New(console.Options{
		Core: core, Listen: o.Listen, Tokens: o.Tokens, People: console.People{SignIn: s.signIn, TwoPerson: o.TwoPerson}, Ready: ready, Log: log, Insight: insight, Webhooks: hooks.report,
		Measures: console.Measures{Registry: registry, Tracer: func() *tracing.Tracer { return gateway.TracerOf(g) }},
		Rooms:    func() []console.Room { return consoleRooms(g) }, OriginStats: g.OriginStats,
		Redeem: func(ctx context.Context, raw, key string, in func(string) bool) (permit.Redemption, error) {
			return gateway.RedeemPermit(ctx, g, raw, key, in)
		},
	})
	return s, err
}

// reload puts webhooks, tokens, certificates and the sign-in of a configuration in force: all of them, or none after an error. TLS and sign-in are
// turned on and off by a restart only.
func (s *operators) reload(cfg *config.Config) error {
	o, err := newOperatorOptions(cfg)
	if err != nil {
		return err
	}
	certificates := s.tls.Load()
	if certificates != nil && o.TLS != (certs.Files{}) {
		if certificates, err = o.TLS.LoadFor("admin.tls"); err != nil {
			return err
		}
	}
	if err := s.hooks.set(cfg); err != nil {
		return err
	}
	if err := s.console.SetTokens(o.Tokens); err != nil {
		return err
	}
	s.tls.Store(certificates)
	if s.signIn != nil && o.SignIn.Issuer != "" {
		return s.signIn.Reload(o.SignIn)
	}
	return nil
}

// add serves operators and metrics until the visitors' part has ended.
func (s *operators) add(parts *lifecycle.Group, ln net.Listener) {
	streams, endStreams := context.WithCancel(context.Background())
	ophttp.Server{Name: "admin listening", Handler: s.console.Handler(), TLS: s.tls.Load, Base: streams, EndStreams: endStreams, Log: s.log}.AddTo(parts, ln)
	if s.signIn == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	parts.Add(func() error {
		err := s.signIn.Run(ctx)
		<-ctx.Done() // a part that returns ends the program
		return err
	}, cancel)
}

func consoleRooms(g *gateway.Gateway) []console.Room {
	views := g.Views()
	rooms := make([]console.Room, len(views))
	for i, v := range views {
		rooms[i] = console.Room{Queue: v.Queue, File: v.File, Origin: v.Origin, Wait: v.Wait, WaitError: v.WaitError, WaitCoverage: v.WaitCoverage, Page: v.Page(), Levels: v.ChallengeLevels(), Account: v.Account}
		rooms[i].Simulate = func(c console.Change) (now, with eta.Outcome, ok bool) {
			return v.Simulate(forecast.Change{Rate: c.Rate, MaxActive: c.MaxActive, Paused: c.Paused})
		}
		rooms[i].Clients = func(prefix netip.Prefix, limit int) (list []console.Client, all int) {
			newest, all := v.Clients(prefix, limit)
			for _, u := range newest {
				list = append(list, console.Client{ID: admission.ID(u.ID), Address: u.Address, At: u.At})
			}
			return list, all
		}
		rooms[i].Guard = func() (console.Guard, bool) {
			number, proofs, refused, ok := v.Guard()
			return console.Guard{Number: number, Proofs: proofs, Refused: refused}, ok
		}
	}
	return rooms
}

// addAuditWatch compares the audit log with what this gateway has seen of it.
func addAuditWatch(parts *lifecycle.Group, core *admission.Core, log *slog.Logger) {
	ctx, cancel := context.WithCancel(context.Background())
	watch := admission.NewAuditWatch(core, log)
	parts.Add(func() error { return watch.Run(ctx) }, cancel)
}

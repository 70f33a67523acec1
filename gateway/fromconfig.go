package gateway

import (
	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/page"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/config"
)

// FromConfig gives the part of Options that the configuration decides. Log, Version, Core, Registerer, Ring, IDKey and
// Access.Output remain for the caller; the access log's output is to stay nil where c.Log.Access is false.
func FromConfig(c *config.Config) Options {
	o := Options{
		Limits: proxy.Limits{
			Header: int(c.Limits.Header), Target: int(c.Limits.Target), Headers: c.Limits.Headers,
			HeaderTimeout: c.Limits.HeaderTimeout, BodyIdle: c.Limits.BodyIdle, WriteIdle: c.Limits.WriteIdle, Idle: c.Limits.Idle,
		},
		Bind:           c.Tokens.Bind,
		SameSite:       c.Cookies.SameSite,
		TrustedProxies: c.TrustedProxies,
		TLS:            TLS(c.TLS),
		Access:         Access{Combined: c.Log.AccessFormat == "combined", Sample: c.Log.AccessSample, Prefix: c.Log.AccessIP == "prefix"},
		DefaultOrigin:  c.DefaultOrigin,
	}
	for i := range c.Origins {
		o.Origins = append(o.Origins, originFrom(&c.Origins[i]))
	}
	for i := range c.Rooms {
		o.Rooms = append(o.Rooms, roomFrom(c, &c.Rooms[i]))
	}
	return o
}

func originFrom(c *config.Origin) proxy.Config {
	return proxy.Config{
		ID: c.ID, Servers: c.Servers, Timeout: c.Timeout, ConnectTimeout: c.ConnectTimeout, FirstByteTimeout: c.FirstByteTimeout,
		IdleTimeout: c.IdleTimeout, QueueTimeout: c.QueueTimeout, MaxConns: c.MaxConns, MaxBody: int64(c.MaxBody),
		PreserveHost: c.PreserveHost, TLS: proxy.TLSConfig{CAFile: c.TLS.CAFile, ServerName: c.TLS.ServerName},
	}
}

func roomFrom(c *config.Config, r *config.Room) Room {
	out := Room{
		ID: r.ID, Hosts: r.Hosts, Paths: r.Paths, Origin: r.Origin,
		Policy: admission.Policy{
			Enabled: r.Enabled, Method: r.Queue.Method, Rate: int64(r.Admission.Rate), Burst: int64(r.Burst()),
			MaxActive: r.Admission.MaxActive, HeadWindow: r.Admission.HeadWindow, Capacity: r.Queue.Capacity,
			MinWait: r.Admission.MinWait, Absence: r.Queue.Absence, ClaimWindow: r.Queue.ClaimWindow,
			SessionTTL: r.Session.TTL, Message: r.Page.Message, OnStoreError: c.OnStoreErrorOf(r),
		},
		PollBudget: r.PollBudget, Renew: r.Session.Renew, MaxSession: r.Session.Max, CORSOrigins: r.CORSOrigins,
		Page: page.Options{
			Title: r.Page.Title, Languages: r.Page.Languages, TemplateFile: r.Page.TemplateFile, FrameAncestors: r.Page.FrameAncestors,
		},
		PageStatus: r.Page.Status, Compat: r.Compat, Estimator: r.ETA.Estimator,
	}
	for _, b := range r.Bypass {
		out.Bypass = append(out.Bypass, Bypass(b))
	}
	return out
}

package redisurl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Open returns a client for a store URL. It connects when the first command is sent. timeout is the longest that one
// command may take on the socket, and from it follow the other limits; a context with an earlier deadline ends it sooner.
// Nothing is retried: only the caller knows whether a command that may have run can run again.
func Open(rawURL string, timeout time.Duration) (redis.UniversalClient, error) {
	if timeout <= 0 {
		return nil, fmt.Errorf("store.timeout %s: must be more than 0, as 250ms", timeout)
	}
	t, err := parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("store.url %s: it %w", Mask(rawURL), err)
	}
	tlsConfig, err := t.tlsConfig()
	if err != nil {
		return nil, fmt.Errorf("store.url %s: %w", Mask(rawURL), err)
	}

	conns := max(16, 4*runtime.GOMAXPROCS(0))
	o := &redis.UniversalOptions{
		Addrs: t.addrs, Username: t.user, Password: t.pass, DB: t.db, TLSConfig: tlsConfig,
		MasterName: t.master, SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPass,
		MaxRetries: -1, MaxRedirects: 3, DialerRetries: 1,
		ContextTimeoutEnabled: true, ReadTimeout: timeout, WriteTimeout: timeout,
		DialTimeout: min(max(2*timeout, 100*time.Millisecond), 5*time.Second),
		PoolSize:    conns, MaxActiveConns: conns,
		PipelinePoolSize: -1, // pipelines (ASK, WAIT) use the connections of the pool, so that conns bounds them all
		PoolTimeout:      min(max(timeout/4, 10*time.Millisecond), 250*time.Millisecond),
		ConnMaxLifetime:  10 * time.Minute, ConnMaxLifetimeJitter: time.Minute, // spreads connections again behind a balancer
		ConnMaxIdleTime: 5 * time.Minute,
		DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	switch t.kind {
	case sentinel:
		return newFailover(o.Failover()), nil
	case cluster:
		c := o.Cluster()
		c.ClusterStateReloadInterval = 5 * time.Second
		// Commands for every node are sent with ForEachMaster. The routing policies would request the table of all commands, and
		// request it again for each call if the user's ACL refuses it.
		c.DisableRoutingPolicies = true
		return newCluster(c), nil
	}
	return redis.NewClient(o.Simple()), nil // an address that begins with / is a unix socket
}

// newCluster returns a client that reloads the slots after a call to which no master replied. The client library reloads them only after a
// redirection, and a dead master redirects no call: until the next interval every call would go to that master
// (https://github.com/redis/go-redis/issues/3979). One reload is in progress at a time.
func newCluster(o *redis.ClusterOptions) *redis.ClusterClient {
	c := redis.NewClusterClient(o)
	c.AddHook(relearn{again: c.ReloadState, after: func(err error) bool {
		var said redis.Error
		return !errors.As(err, &said) || redis.HasErrorPrefix(err, "CLUSTERDOWN")
	}})
	return c
}

// newFailover returns a client that asks the sentinels for the master after a write that was refused for want of replicas. The sentinel
// that leads a failover publishes the change only when all replicas follow the new master, seconds later. Until then a client that
// subscribes to it would keep its connections to a former master that lives. A dial asks for the master, and closes the connections to another one.
func newFailover(o *redis.FailoverOptions) *redis.Client {
	c := redis.NewFailoverClient(o)
	dial := c.Options().Dialer
	var dials sync.Mutex // one at a time
	c.AddHook(relearn{
		again: func(ctx context.Context) {
			if !dials.TryLock() {
				return
			}
			defer dials.Unlock()
			if conn, err := dial(ctx, "tcp", ""); err == nil {
				_ = conn.Close()
			}
		},
		after: func(err error) bool { return redis.HasErrorPrefix(err, "NOREPLICAS") },
	})
	return c
}

// relearn calls again after a call with such an error.
type relearn struct {
	after func(error) bool
	again func(context.Context)
}

func (relearn) DialHook(next redis.DialHook) redis.DialHook { return next }

func (relearn) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r relearn) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err != nil && r.after(err) {
			r.again(ctx)
		}
		return err
	}
}

func (t *target) tlsConfig() (*tls.Config, error) {
	if !t.tls {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.serverName}
	if t.caFile != "" {
		pem, err := os.ReadFile(t.caFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file %s: holds no certificate in PEM form", t.caFile)
		}
	}
	if t.certFile != "" {
		pair, err := tls.LoadX509KeyPair(t.certFile, t.keyFile)
		if err != nil {
			return nil, fmt.Errorf("cert_file, key_file: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// LogTo sends the client library's own messages to log at debug level, for the whole process. They concern single
// connections; a failure that matters is also the error of a command.
func LogTo(log *slog.Logger) { redis.SetLogger(clientLog{log}) }

type clientLog struct{ log *slog.Logger }

func (l clientLog) Printf(ctx context.Context, format string, v ...any) {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, "store client", "said", fmt.Sprintf(format, v...))
	}
}

// ErrUnsuitable is wrapped by CheckServer and CheckDisk for a store that replies but cannot be used.
var ErrUnsuitable = errors.New("the store cannot be used")

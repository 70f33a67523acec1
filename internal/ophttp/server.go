package ophttp

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/anteroom/anteroom/internal/certs"
	"github.com/anteroom/anteroom/internal/lifecycle"
)

// Server serves a listener of operators.
type Server struct {
	Name           string // of the listener, in the log line when it is open
	Handler        http.Handler
	TLS            func() *tls.Config // of new connections; returns nil for a listener without TLS
	MaxHeaderBytes int                // 0: that of net/http
	Base           context.Context    // of requests; nil: context.Background()
	EndStreams     func()             // required; ends requests that do not end by themselves, such as event streams
	Log            *slog.Logger
}

// shutdownTimeout bounds the wait for requests when a listener stops.
const shutdownTimeout = 2 * time.Second

// AddTo adds the server on ln to the parts of a program. It serves until the parts before it have ended. Then it calls EndStreams and waits
// up to shutdownTimeout for the other requests.
func (s Server) AddTo(parts *lifecycle.Group, ln net.Listener) {
	server := &http.Server{
		Handler: s.Handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 75 * time.Second, MaxHeaderBytes: s.MaxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	if s.Base != nil {
		server.BaseContext = func(net.Listener) context.Context { return s.Base }
	}
	server.RegisterOnShutdown(s.EndStreams)
	if s.TLS() != nil {
		ln = certs.Listener(ln, s.TLS)
	}
	parts.Add(func() error {
		s.Log.Info(s.Name, "addr", ln.Addr().String())
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, func() {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})
}

package extauthz

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/anteroom/anteroom/gateway/check"
	"github.com/anteroom/anteroom/gateway/wire"
)

// Gateway decides about requests.
type Gateway interface {
	Check(q check.Question)
	// Ready reports whether requests should be sent to this gateway.
	Ready() bool
}

// Limits of the server. A message holds the fields of a request, and its body if Envoy is configured to send that, so the limit is far
// above what the gateway accepts: a request that is too large gets the denying answer of a check, not an error of the transport, which
// failure_mode_allow would turn into a pass.
const (
	messageMax     = 2 << 20
	connectionsMax = 1024
	streamsMax     = 256 // checks at once of a connection
	window         = 1 << 20
	headerMax      = 16 << 10
	pingMin        = 10 * time.Second // between two keepalive pings of a client
	pingAfter      = time.Minute      // of silence; a client that does not respond within pingTimeout is gone
	pingTimeout    = 20 * time.Second
	handshakeMax   = 10 * time.Second
)

// Server is a gRPC server of envoy.service.auth.v3.Authorization and of grpc.health.v1.Health, without reflection.
type Server struct{ grpc *grpc.Server }

// New returns a server of checks, which g decides.
func New(g Gateway) *Server {
	s := &Server{grpc.NewServer(
		grpc.MaxRecvMsgSize(messageMax), grpc.MaxConcurrentStreams(streamsMax), grpc.MaxHeaderListSize(headerMax),
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window), grpc.ConnectionTimeout(handshakeMax),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingMin, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
	)}
	authv3.RegisterAuthorizationServer(s.grpc, authorization{g})
	grpc_health_v1.RegisterHealthServer(s.grpc, health{g: g})
	return s
}

// Serve answers the checks that arrive at ln until Shutdown or Close, and then returns nil.
func (s *Server) Serve(ln net.Listener) error {
	err := s.grpc.Serve(netutil.LimitListener(ln, connectionsMax))
	if errors.Is(err, grpc.ErrServerStopped) { // before Serve
		return nil
	}
	return err
}

// Shutdown stops accepting, asks clients to use other connections, and returns when the checks that have begun are answered or ctx
// ends. It returns the error of ctx if checks were cut.
func (s *Server) Shutdown(ctx context.Context) error {
	drained := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(drained)
	}()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		s.grpc.Stop() // GracefulStop goes on to wait for the checks that are cut
		return ctx.Err()
	}
}

// Close ends the server and its connections.
func (s *Server) Close() { s.grpc.Stop() }

type authorization struct{ g Gateway }

// Check answers one check.
func (a authorization) Check(ctx context.Context, r *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	q := question{request: r, peer: peerOf(ctx)}
	a.g.Check(&q)
	return q.response, nil
}

// question is a check on its way through the gateway.
type question struct {
	request  *authv3.CheckRequest
	peer     netip.Addr
	response *authv3.CheckResponse
}

func (q *question) Peer() netip.Addr { return q.peer }

func (q *question) Describe(into *wire.Description, proxies []netip.Prefix) *check.Fault {
	return describe(q.request, q.peer, proxies, into)
}

func (q *question) Answer(a *check.Answer) { q.response = respond(a) }

// peerOf returns the address of the connection's other end.
func peerOf(ctx context.Context) netip.Addr {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return netip.Addr{}
	}
	if a, ok := p.Addr.(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// health reports whether checks should be sent to this gateway. It has no Watch, whose streams would outlast a shutdown.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	g Gateway
}

// Check returns the health of the server, whose name is empty, and of the service of checks.
func (h health) Check(_ context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if name := r.GetService(); name != "" && name != authv3.Authorization_ServiceDesc.ServiceName {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	s := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if h.g.Ready() {
		s = grpc_health_v1.HealthCheckResponse_SERVING
	}
	return &grpc_health_v1.HealthCheckResponse{Status: s}, nil
}

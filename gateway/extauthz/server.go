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
	Check(c check.Call)
	// Ready reports whether this gateway should receive checks.
	Ready() bool
}

// Limits of the server. A message above messageMax is an error of the call, for which Envoy lets the request pass if failure_mode_allow is
// set. So the limit is far above what the gateway accepts: a request that is too large is denied. A message holds the fields of the request, and
// its body if Envoy is configured to send that.
const (
	messageMax     = 2 << 20
	connectionsMax = 1024
	streamsMax     = 256 // concurrent checks of a connection
	window         = 1 << 20
	headerMax      = 16 << 10
	pingMin        = 10 * time.Second // between two keepalive pings of a client; more frequent ones end its connection
	pingAfter      = time.Minute      // without activity the server pings; a connection without a response in pingTimeout is closed
	pingTimeout    = 20 * time.Second
	handshakeMax   = 10 * time.Second
)

// Server is a gRPC server of envoy.service.auth.v3.Authorization and of grpc.health.v1.Health, without reflection.
type Server struct{ grpc *grpc.Server }

// New returns a server. g decides about the checks.
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
	if errors.Is(err, grpc.ErrServerStopped) { // Shutdown was called before
		return nil
	}
	return err
}

// Shutdown stops accepting, tells clients to send no more checks on their connections, and returns when the checks in progress have ended.
// When ctx ends, it cuts them off and returns the error of ctx.
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
		s.grpc.Stop() // GracefulStop returns only after the handlers that this cuts off
		return ctx.Err()
	}
}

// Close closes the server and its connections.
func (s *Server) Close() { s.grpc.Stop() }

type authorization struct{ g Gateway }

// Check responds to one check.
func (a authorization) Check(ctx context.Context, r *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	c := call{request: r, peer: peerOf(ctx)}
	a.g.Check(&c)
	return c.response, nil
}

// call is a check on its way through the gateway.
type call struct {
	request  *authv3.CheckRequest
	peer     netip.Addr
	response *authv3.CheckResponse
}

func (c *call) Peer() netip.Addr { return c.peer }

func (c *call) Describe(d *wire.Description, proxies []netip.Prefix) *check.Fault {
	return describe(c.request, c.peer, proxies, d)
}

func (c *call) Respond(r *check.Response) { c.response = checkResponse(r) }

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

// health implements grpc.health.v1.Health without Watch, whose streams would delay a shutdown.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	g Gateway
}

// Check returns whether this gateway should receive checks, for the service of checks and for the whole server (an empty name).
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

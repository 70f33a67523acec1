package extauthz

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/valyala/fasthttp"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/anteroom/anteroom/gateway/check"
	"github.com/anteroom/anteroom/gateway/http1"
)

// Fields that describe the visitor to the origin.
const (
	stateField   = "x-waiting-room"
	sessionField = "x-waiting-room-session"
)

// checkResponse returns the response to a check as a CheckResponse.
func checkResponse(r *check.Response) *authv3.CheckResponse {
	state := string(r.HTTP.Header.Peek("X-Waiting-Room"))
	out := &authv3.CheckResponse{DynamicMetadata: metadata(r.Room, state)}
	if r.Passes() {
		out.Status = &status.Status{Code: int32(codes.OK)}
		out.HttpResponse = &authv3.CheckResponse_OkResponse{OkResponse: passing(&r.HTTP.Header, state)}
		return out
	}
	out.Status = &status.Status{Code: int32(codes.Unauthenticated)}
	if r.HTTP.StatusCode() == fasthttp.StatusForbidden {
		out.Status.Code = int32(codes.PermissionDenied)
	}
	out.HttpResponse = &authv3.CheckResponse_DeniedResponse{DeniedResponse: denying(r.HTTP)}
	return out
}

// passing returns the changes to a request that may go on, and to its response. Caches must not store a response that gets a cookie or a pass.
func passing(h *fasthttp.ResponseHeader, state string) *authv3.OkHttpResponse {
	ok := &authv3.OkHttpResponse{Headers: []*corev3.HeaderValueOption{replace(stateField, state)}}
	session := string(h.Peek("X-Waiting-Room-Session"))
	if session != "" {
		ok.Headers = append(ok.Headers, replace(sessionField, session))
	}
	ok.HeadersToRemove = check.SessionNames(session != "")
	for name, value := range h.All() {
		switch {
		case http1.EqualFold(name, "set-cookie"):
			ok.ResponseHeadersToAdd = append(ok.ResponseHeadersToAdd, add("set-cookie", string(value)))
		case http1.EqualFold(name, "x-waiting-room-pass"):
			ok.ResponseHeadersToAdd = append(ok.ResponseHeadersToAdd, replace("x-waiting-room-pass", string(value)))
		}
	}
	if len(ok.ResponseHeadersToAdd) > 0 {
		ok.ResponseHeadersToAdd = append(ok.ResponseHeadersToAdd, replace("cache-control", "private, no-store"))
	}
	return ok
}

// denying returns the response that the visitor receives instead of the origin's.
func denying(res *fasthttp.Response) *authv3.DeniedHttpResponse {
	denied := &authv3.DeniedHttpResponse{
		Status: &typev3.HttpStatus{Code: typev3.StatusCode(res.StatusCode())},
		Body:   string(res.Body()),
	}
	for name, value := range res.Header.All() {
		if http1.FramingName(name) {
			continue
		}
		option := replace
		if http1.EqualFold(name, "set-cookie") {
			option = add
		}
		denied.Headers = append(denied.Headers, option(strings.ToLower(string(name)), string(value)))
	}
	return denied
}

func replace(name, value string) *corev3.HeaderValueOption {
	return option(name, value, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
}

func add(name, value string) *corev3.HeaderValueOption {
	return option(name, value, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)
}

func option(name, value string, action corev3.HeaderValueOption_HeaderAppendAction) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: name, Value: value}, AppendAction: action}
}

// metadata returns what Envoy's access log and other filters can read of a response.
func metadata(room, state string) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{"room": structpb.NewStringValue(room), "state": structpb.NewStringValue(state)}}
}

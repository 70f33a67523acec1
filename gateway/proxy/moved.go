package proxy

import (
	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/wire"
)

// What has moved to gateway/http1 and gateway/wire, under its former names.
type (
	Request        = wire.Request
	Limits         = wire.Limits
	Refusal        = http1.Refusal
	Preface        = wire.ProxyProtocol
	PrefaceOptions = wire.ProxyProtocolOptions
)

const (
	PrefaceV1 = wire.ProxyProtocolV1
	PrefaceV2 = wire.ProxyProtocolV2

	CodeRequestLine = http1.CodeRequestLine
	CodeMethod      = http1.CodeMethod
	CodeVersion     = http1.CodeVersion
	CodeTarget      = http1.CodeTarget
	CodeTargetLong  = http1.CodeTargetLong
	CodeHeader      = http1.CodeHeader
	CodeHeaderLarge = http1.CodeHeaderLarge
	CodeNames       = http1.CodeNames
	CodeHost        = http1.CodeHost
	CodeFraming     = http1.CodeFraming
	CodeCoding      = http1.CodeCoding
	CodeExpect      = http1.CodeExpect
	CodeTimeout     = wire.CodeTimeout
)

var (
	ErrBodyTooLarge = wire.ErrBodyTooLarge
	ErrBodyIdle     = wire.ErrBodyIdle

	CheckRequest    = wire.CheckRequest
	CloseFresh      = wire.CloseFresh
	CloseWaiting    = wire.CloseWaiting
	Direct          = wire.Direct
	IsAlias         = http1.IsAlias
	Listener        = wire.Listener
	ParseRequest    = wire.ParseRequest
	PrefaceErrors   = wire.ProxyHeaderErrors
	PrefaceListener = wire.ProxyProtocolListener
	RequestOf       = wire.RequestOf
	ServerOptions   = wire.ServerOptions
	Socket          = wire.Socket
	TakeOver        = wire.TakeOver
)

package client

import (
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
)

// The bindings of tokens.
const (
	BindNone = "none"
	BindIP   = "ip" // the client's network, see Network
	BindUA   = "ua" // the User-Agent
)

// claimSize is the length of the claim bnd.
const claimSize = 16

// Binding represents the network or browser to which the tokens of a client are bound. It is computed at the first use.
type Binding struct {
	setting string
	addr    netip.Addr
	agent   []byte
	claim   []byte
	known   bool
	buf     [claimSize]byte
	text    []byte
}

// Set sets the binding of a client by a setting. agent is kept.
func (b *Binding) Set(setting string, addr netip.Addr, agent []byte) {
	*b = Binding{setting: setting, addr: addr, agent: agent, text: b.text[:0]}
}

// Claim returns the claim bnd of the client's tokens; empty: they are not bound.
func (b *Binding) Claim() []byte {
	if !b.known {
		b.claim, b.known = b.append(b.buf[:0], b.setting), true
	}
	return b.claim
}

// Matches reports whether the client may use a token with a claim bnd. A token from before a change of the setting is checked
// against its former kind of binding.
func (b *Binding) Matches(claim string) bool {
	if b.setting == BindNone || claim == string(b.Claim()) {
		return true
	}
	before := BindIP
	if b.setting == BindIP {
		before = BindUA
	}
	var buf [claimSize]byte
	return claim != "" && claim == string(b.append(buf[:0], before))
}

// Changes reports whether a token with a claim bnd has to be signed again because the setting binds tokens otherwise.
func (b *Binding) Changes(claim string) bool { return claim != string(b.Claim()) }

func (b *Binding) append(dst []byte, setting string) []byte {
	b.text = append(append(b.text[:0], setting...), 0)
	switch setting {
	case BindIP:
		b.text = Network(b.addr).AppendTo(b.text)
	case BindUA:
		b.text = append(b.text, b.agent...)
	default:
		return dst
	}
	sum := sha256.Sum256(b.text)
	return base64.RawURLEncoding.AppendEncode(dst, sum[:claimSize*6/8])
}

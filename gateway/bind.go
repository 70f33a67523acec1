package gateway

import (
	"crypto/sha256"
	"encoding/base64"

	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/token"
)

// bindSize is the length of the claim bnd.
const bindSize = 16

// appendBind appends what a token of this visitor is bound to under a setting, as the claim bnd has it.
func (v *visit) appendBind(dst []byte, setting string) []byte {
	v.text = append(append(v.text[:0], setting...), 0)
	switch setting {
	case BindIP:
		v.text = client.Network(v.peer.Addr).AppendTo(v.text)
	case BindUA:
		v.text = append(v.text, v.req.Peek("user-agent")...)
	default:
		return dst
	}
	sum := sha256.Sum256(v.text)
	return base64.RawURLEncoding.AppendEncode(dst, sum[:bindSize*6/8])
}

// bind is what this visitor's tokens are bound to; empty: nothing.
func (v *visit) bind() []byte {
	if !v.bindKnown {
		v.bindText, v.bindKnown = v.appendBind(v.bindBuf[:0], v.state.options.Bind), true
	}
	return v.bindText
}

// fits tells whether a token may be used by this visitor, with what it is bound to. One that was bound by another kind,
// before the setting was changed, is held to that.
func (v *visit) fits(bnd string) bool {
	switch setting := v.state.options.Bind; {
	case setting == BindNone, bnd == string(v.bind()):
		return true
	case setting == BindIP:
		return v.isBound(bnd, BindUA)
	default:
		return v.isBound(bnd, BindIP)
	}
}

func (v *visit) isBound(bnd, setting string) bool {
	var buf [bindSize]byte
	return bnd != "" && bnd == string(v.appendBind(buf[:0], setting))
}

// fitsPass is fits for passes. One without a binding is from before the setting: it counts until it ends, and is bound to
// whoever renews it, which every request of its does.
func (v *visit) fitsPass(p *token.Pass) bool { return p.Bind == "" || v.fits(p.Bind) }

// fitsWaiting is fits for waiting tokens. One without a binding is from before the setting: it counts for absence after the
// store has last renewed it, and its next answer binds it.
func (v *visit) fitsWaiting(w *token.Waiting) bool {
	if w.Bind != "" || v.state.options.Bind == BindNone {
		return v.fits(w.Bind)
	}
	absence := v.room.line.Snapshot().Policy.Absence
	if now := v.room.line.Now(); w.Seen > 0 && now > 0 {
		return now-max(w.Seen, w.Heard) <= absence.Microseconds()
	}
	return v.now/1e6-w.IssuedAt <= int64(absence.Seconds())
}

// rebinds tells whether a token has to be signed anew to be bound as the setting says.
func (v *visit) rebinds(bnd string) bool { return bnd != string(v.bind()) }

package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/token"
)

// refusals are the reasons of joins_refused_total.
var refusals = []string{
	"closed", "draining", "full", "account", "store", admission.ReasonAddress, admission.ReasonNetwork,
	"proof_missing", "proof_invalid", "captcha_missing", "captcha_failed", "captcha_unavailable",
}

func refusalReason(why admission.Refusal, s *admission.Standing) string {
	switch why {
	case admission.TooMany:
		if s.Reason == admission.ReasonNetwork {
			return admission.ReasonNetwork
		}
		return admission.ReasonAddress
	case admission.Closed:
		return "closed"
	case admission.Draining:
		return "draining"
	case admission.Full:
		return "full"
	case admission.Spent:
		return "account"
	}
	return "store"
}

func (v *visit) refusedJoin(reason string) { v.room.metrics.refused[reason].Inc() }

// seconds rounds up, so that whoever waits so long has waited long enough.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// addressHash is the length of each of the two halves of an address's hash: enough that no two of a room share one.
const addressHash = 9

// address is the hash under which the visitor's joins are counted, and behind it that of the network around the address;
// empty where the room counts none. Without the key nobody can tell which address it is of.
func (v *visit) address() string {
	if v.room.options.Policy.Joins <= 0 || !v.peer.Addr.IsValid() {
		return ""
	}
	one, around := 32, 24
	if v.peer.Addr.Is6() {
		one, around = 64, 48
	}
	out := make([]byte, 0, 2*addressHash)
	for _, bits := range []int{one, around} {
		prefix, err := v.peer.Addr.Prefix(bits)
		if err != nil {
			return ""
		}
		out = append(out, derive(v.state.options.IDKey, "join", v.room.id, prefix.String())[:addressHash]...)
	}
	return string(out)
}

// derive is an HMAC over length-prefixed fields, so that no two lists of them share one.
func derive(key []byte, fields ...string) []byte {
	h := hmac.New(sha256.New, key)
	for _, field := range fields {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(field)))
		h.Write(n[:])
		h.Write([]byte(field))
	}
	return h.Sum(nil)
}

// tellRefused answers a poll of a ticket that was signed while the line was long, and that the line did not take.
func (v *visit) tellRefused(code int, o *outlook, w *token.Waiting, s *admission.Standing) {
	v.refusedJoin(refusalReason(admission.TooMany, s))
	out := v.status(o, w, &prospect{}, stateRejected)
	out.reason, out.refresh = reasonOf(s), seconds(s.Retry)
	v.json(code, &out)
}

// counted reads a counter.
func counted(c prometheus.Counter) int64 {
	var m dto.Metric
	if c.Write(&m) != nil {
		return 0
	}
	return int64(m.GetCounter().GetValue())
}

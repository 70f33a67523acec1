package gateway

import (
	"encoding/hex"
	"strconv"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
)

// recipe describes how to recompute a draw; docs/lottery.md has an example.
const recipe = "1. Before the opening note commitment; afterwards SHA-256(seed) must be equal to it. " +
	"2. Your id is the claim jti of your waiting token: 16 bytes in base64url. If you joined with a nonce (or an Idempotency-Key), its last 8 bytes are the first 8 of HMAC-SHA256(key: its first 8 bytes, message: the nonce). " +
	"3. x is the first 8 bytes of HMAC-SHA256(key: seed, message: id), as an unsigned integer, most significant byte first. " +
	"4. Your order, the claim ord of the token that you are given after the opening, is drawn - span + floor(x * span / 2^64), in microseconds; a smaller one is served earlier, equal ones by id. " +
	"5. Whoever's id was not confirmed before the opening has an order from drawn on, in order of arrival. gateway verify-draw FILE does 1 to 4."

// serveDraw sends the lottery of the room: the commitment before the opening, and the seed one absence after the opening.
func serveDraw(v *visit) (decision, *answer.Problem) {
	r := v.room
	s := r.queue.Snapshot()
	d, drawn := r.lottery(s)
	next := r.nextLottery(d, v.now)
	if d == nil {
		d, next = next, nil
	}
	if d == nil {
		return decision{}, answer.NoDraw
	}
	b := answer.AppendString(append(v.out.Body[:0], `{"room":`...), r.id)
	b = append(b, `,"method":"lottery"`...)
	commitment, seed, known := r.queue.Commitment(d)
	b = appendLottery(b, d, commitment)
	if s.Opens == d.Opens {
		b = strconv.AppendInt(append(b, `,"gathered":`...), s.Prequeued, 10)
	}
	b = strconv.AppendInt(append(b, `,"span":`...), d.Span(), 10)
	if drawn > 0 {
		b = strconv.AppendInt(append(b, `,"drawn":`...), drawn, 10)
		if known && r.queue.Now() >= drawn+s.Policy.Absence.Microseconds() {
			b = appendHex(append(b, `,"seed":`...), seed[:])
		}
	}
	if next != nil {
		b = append(appendLottery(append(b, `,"next":{"method":"lottery"`...), next, next.Commitment()), '}')
	}
	b = answer.AppendString(append(b, `,"recipe":`...), recipe)
	v.out.Body = append(b, '}')
	return document(waiting, 200, answer.TypeJSON), nil
}

func appendLottery(b []byte, d *admission.Draw, commitment [32]byte) []byte {
	b = answer.AppendTime(append(b, `,"opens_at":`...), d.Opens)
	if d.Gathers > 0 {
		b = answer.AppendTime(append(b, `,"prequeue_at":`...), d.Gathers)
	}
	return appendHex(append(b, `,"commitment":`...), commitment[:])
}

func appendHex(b, bytes []byte) []byte {
	return append(hex.AppendEncode(append(b, '"'), bytes), '"')
}

// lottery returns the lottery in force or, where there is none, the last that the store has drawn, and the order time of its
// opening.
func (r *room) lottery(s *admission.Snapshot) (d *admission.Draw, drawn int64) {
	plan := r.options.Policy.Plan
	if s.Gathering() {
		return plan.Draw(s.Policy.OpensAt), 0
	}
	if s.Drawn > 0 {
		if d = plan.Draw(s.Opens); d != nil {
			return d, s.Drawn
		}
	}
	return nil, 0
}

// nextLottery returns the lottery that is planned after d.
func (r *room) nextLottery(d *admission.Draw, now int64) *admission.Draw {
	if d != nil {
		now = max(now, d.Opens)
	}
	return r.options.Policy.Plan.DrawAfter(now)
}

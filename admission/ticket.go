package admission

import (
	"encoding/base64"
	"errors"
	"time"

	"github.com/anteroom/anteroom/admission/policy"
)

// ID identifies a ticket and the session that the ticket becomes when it is claimed: one ticket makes one session. It has 128
// random bits.
type ID [16]byte

// String returns the id as tokens contain it: 22 characters of base64url.
func (id ID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// ParseID reads what String returned.
func ParseID(text string) (id ID, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return ID(append(raw, make([]byte, len(id))...)[:len(id)]), err == nil && len(raw) == len(id)
}

// Client distinguishes the claimer of a ticket from somebody with a copied token: a hash of the nonce cookie or, without cookies,
// of address prefix and user agent.
type Client [16]byte

// State is the state of a ticket; docs/architecture.md has the diagram, under States of a ticket.
type State uint8

// A ticket is in exactly one of these states.
const (
	Waiting  State = iota + 1 // enrolled, parked, or signed and not enrolled yet
	Admitted                  // admitted, not claimed yet
	Active                    // claimed: a session
	Expired                   // absent too long, or from before a reset
	Lapsed                    // admitted and not claimed in time
	Ended                     // claimed by another client, left, removed or revoked
	Refused                   // signed, and not enrolled: its address has too many places
)

// Why a ticket is Expired, Lapsed or Ended. The first three are shown to visitors.
const (
	ReasonLate    = "late"
	ReasonReset   = "reset"
	ReasonRemoved = "removed"
	ReasonLapsed  = "lapsed"
	ReasonLeft    = "left"
	ReasonClaimed = "claimed"
	ReasonRevoked = "revoked"
	ReasonAddress = "address" // of Refused
	ReasonNetwork = "network"
	// ReasonReturned marks a session whose visitor has returned and has a new place in its stead.
	ReasonReturned = "returned"
	// ReasonKept comes with ErrUnknown for a Return that is Held: without Held, Join would give a place.
	ReasonKept = "kept"
)

// Ticket is the content of a waiting token. Order, Seen and Heard are order time in microseconds. Epoch is empty until the store
// has confirmed the ticket. Fence is 0 where its gateway had never reached the store; Order and Heard are then on that machine's
// clock.
type Ticket struct {
	ID    ID
	Order int64
	Seen  int64
	// Hold is for how long after Seen the ticket counts as present in the store, at least; 0: unknown.
	Hold  time.Duration
	Epoch string
	Fence int64
	// Heard is when a gateway last answered a poll without the store, where that is later than Seen; 0: never.
	Heard int64
	// Interval is the polling interval that the response is about to advise, or the last one advised; 0: 10 s.
	Interval time.Duration
	// Wait is the wait estimate that the response is about to show; 0: unknown.
	Wait time.Duration
	// Client distinguishes a repeated claim from a copied token.
	Client Client
	// Joined is the time of signing, in seconds of Redis's clock. It ranks a ticket without an Order in a room that is no
	// longer a lottery.
	Joined int64
	// Address holds hashes of the client's address and of its network, 9 bytes each, for the join limits; "" in a ticket that was
	// enrolled before and is not counted again.
	Address string
}

// Counted reports whether the place has been counted among its address's joins, or need not be: the store has confirmed it.
func (t *Ticket) Counted() bool { return t.Epoch != "" }

// confirmed returns when the store confirmed the ticket, or else when the visitor joined. A drawn order is neither.
func (t *Ticket) confirmed() int64 {
	if t.Counted() {
		return t.Seen
	}
	return max(t.Order, t.Seen)
}

// lastAnswered returns when the last poll of the ticket was answered, with the store or without.
func (t *Ticket) lastAnswered() int64 { return max(t.confirmed(), t.Heard) }

// covers reports whether a ticket that was checked age ago stays present until the poll that the response is about to advise.
func (t *Ticket) covers(age time.Duration) bool { return policy.Covers(t.Hold, age, t.Interval) }

// renew copies what the store confirmed of the ticket.
func (t *Ticket) renew(by *Ticket) {
	t.Order, t.Seen, t.Hold, t.Heard, t.Epoch, t.Fence = by.Order, by.Seen, by.Hold, by.Heard, by.Epoch, by.Fence
}

// Standing is what Join, Check and Claim return about a ticket.
type Standing struct {
	State  State
	Reason string // of Expired, Lapsed, Ended, Refused
	// Retry is the time until the address may get another place; of Refused and TooMany.
	Retry time.Duration
	// Ticket as the store now holds it; Order may have been corrected, Seen,
	// Epoch and Fence renewed. The caller signs a new token when Renewed.
	Ticket  Ticket
	Renewed bool
	// AdmittedAt is Redis's clock in microseconds, set by the store when the
	// ticket was admitted; 0 for Waiting and Expired.
	AdmittedAt int64
	// ClaimedAt is the order time at which the store, or without it this gateway, confirmed an Active session; 0: not known.
	ClaimedAt int64
	// First marks the claim that made the session; its repeats are Active as well.
	First bool
	// Gathering: the ticket is in a pre-queue and has no Order yet.
	Gathering bool
	// New marks a new place of a derived id or an account.
	New bool
	// Offline marks a Standing that was made without the store.
	Offline bool
	// Unsure marks an Offline Standing of a join or claim whose store call had no reply, or of a join whose id another may have used before
	// (Keyed). That call may have taken effect or still do so: the store then has a place or session of the call's Client.
	Unsure bool
}

// Refusal is the reason why Join gives no place. The zero value, Granted, is no refusal.
type Refusal string

// Refusals of Join.
const (
	Granted     Refusal = ""
	Closed      Refusal = "room_closed"
	Draining    Refusal = "room_draining"
	Full        Refusal = "room_full"
	Unavailable Refusal = "store_unavailable" // on_store_error: closed
	Spent       Refusal = "account_spent"     // too many places of the account ended recently
	TooMany     Refusal = "too_many_joins"    // of the address or its network, as the Standing's Reason says
	MustWait    Refusal = "must_wait"         // of an Arrival with SessionOnly: no session can begin now
)

// ErrStore is returned when the store did not reply in time. The call may or may not have taken effect, and may be repeated.
var ErrStore = errors.New("store unavailable")

// ErrUnknown is returned when the queue holds no such ticket or session.
var ErrUnknown = errors.New("no such ticket")

// ErrNotYet is returned by a claim of a ticket that still waits.
var ErrNotYet = errors.New("not admitted yet")

package admission

import (
	"encoding/base64"
	"errors"
	"time"

	"github.com/anteroom/anteroom/admission/policy"
)

// ID names a ticket, and the session that it becomes when it is claimed: one
// ticket makes one session, so they share a name. 128 random bits.
type ID [16]byte

// String is the id as it stands in tokens: 22 characters of base64url.
func (id ID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// Client tells the claimer of a ticket from somebody who copied it: a hash of
// the nonce cookie or, without cookies, of address prefix and user agent.
type Client [16]byte

// State is where a ticket stands (docs/architecture.md#states-of-a-ticket).
type State uint8

// A ticket is in exactly one of these states.
const (
	Waiting  State = iota + 1 // enrolled or parked, or signed and not yet enrolled
	Admitted                  // let in, not claimed yet
	Active                    // claimed: a session
	Expired                   // absent too long, or from before a reset
	Lapsed                    // admitted and not claimed in time
	Ended                     // claimed by another client, left, removed or revoked
	Refused                   // signed, and not enrolled: its address has taken too many places
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
	// ReasonReturned is that of a session whose visitor came back and has another place for it.
	ReasonReturned = "returned"
	// ReasonKept is why Join returns ErrUnknown for a Return that is Held: it would give a place.
	ReasonKept = "kept"
)

// Ticket is the content of a waiting token. Order, Seen and Heard are order time
// in microseconds. Epoch is empty when the store has never confirmed the ticket.
// Fence is 0 when its gateway had never reached the store: Order and Heard are
// then that machine's clock.
type Ticket struct {
	ID    ID
	Order int64
	Seen  int64
	// Hold is for how long after Seen the ticket counts as present in the store, at least; 0: that is not known.
	Hold  time.Duration
	Epoch string
	Fence int64
	// Heard is when a gateway last answered the visitor without the store, where that is later than Seen; see vouch. 0: never.
	Heard int64
	// Interval is the polling interval that the answer is about to advise, or that the last one advised; 0: 10 s.
	Interval time.Duration
	// Wait is the expected wait that the answer is about to show; 0: not known.
	Wait time.Duration
	// Client lets a repeated claim be told from a copied token.
	Client Client
	// Joined is when it was signed, in seconds of Redis's clock; it is the place of a ticket without an Order in a room that
	// is no lottery any more.
	Joined int64
	// Address is a hash of the client's, which join limits count, and behind it one of its network, 9 bytes each; "":
	// none, as in a ticket that was enrolled before and is not counted again.
	Address string
}

// Counted says whether the place was counted among its address's joins, or need not be: the store has confirmed it.
func (t *Ticket) Counted() bool { return t.Epoch != "" }

// confirmed returns when the store confirmed the ticket, or when the visitor joined where it has not. A drawn order is neither.
func (t *Ticket) confirmed() int64 {
	if t.Counted() {
		return t.Seen
	}
	return max(t.Order, t.Seen)
}

// lastHeard returns when the ticket's visitor was last answered, with the store or without.
func (t *Ticket) lastHeard() int64 { return max(t.confirmed(), t.Heard) }

// covers reports whether a ticket that was checked age ago stays present until the poll that the response is about to advise.
func (t *Ticket) covers(age time.Duration) bool { return policy.Covers(t.Hold, age, t.Interval) }

// renew copies what the store confirmed of the ticket.
func (t *Ticket) renew(by *Ticket) {
	t.Order, t.Seen, t.Hold, t.Heard, t.Epoch, t.Fence = by.Order, by.Seen, by.Hold, by.Heard, by.Epoch, by.Fence
}

// Standing is the answer about a ticket.
type Standing struct {
	State  State
	Reason string // of Expired, Lapsed, Ended, Refused
	// Retry is the time until the address may have another place; of Refused and TooMany.
	Retry time.Duration
	// Ticket as the store now holds it; Order may have been corrected, Seen,
	// Epoch and Fence renewed. The caller signs a new token when Renewed.
	Ticket  Ticket
	Renewed bool
	// AdmittedAt is Redis's clock in microseconds, set by the store when the
	// ticket was admitted; 0 for Waiting and Expired.
	AdmittedAt int64
	// First marks the claim that made the session; its repeats are Active as well.
	First bool
	// Gathering: the ticket has no Order before a lottery opens.
	Gathering bool
	// New marks a place that an account was given now.
	New bool
	// Offline marks an answer that was made without the store.
	Offline bool
}

// Refusal says why no ticket is given. The zero value refuses nothing.
type Refusal string

// Refusals of Join.
const (
	Granted     Refusal = ""
	Closed      Refusal = "room_closed"
	Draining    Refusal = "room_draining"
	Full        Refusal = "room_full"
	Unavailable Refusal = "store_unavailable" // on_store_error: closed
	Spent       Refusal = "account_spent"     // too many places of an account have ended lately
	TooMany     Refusal = "too_many_joins"    // of the address or its network, as the Standing's Reason says
)

// ErrStore means that the store did not answer in time; the call may or may
// not have taken effect, and may be repeated.
var ErrStore = errors.New("store unavailable")

// ErrUnknown means that the line holds no such ticket or session.
var ErrUnknown = errors.New("no such ticket")

// ErrNotYet is the answer to a claim of a ticket that still waits.
var ErrNotYet = errors.New("not admitted yet")

package admission

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options of a Core. Client is required.
type Options struct {
	Client  redis.UniversalClient
	Prefix  string        // of every key; "wr"
	Timeout time.Duration // deadline of a call on the request path; 250ms
	Log     *slog.Logger
	Gateway string // names this process among its peers; random when empty
	// Observe is told of every store call, for metrics.
	Observe func(script string, took time.Duration, err error)
}

// Core holds the rooms of one process over one store.
type Core struct{ log *slog.Logger }

// New reads the scripts and starts nothing.
func New(o Options) (*Core, error) { panic("soon") }

// Room gives the room of that id, made when it is new, with the policy that
// the configuration now says.
func (c *Core) Room(id string, p Policy) *Room { panic("soon") }

// Remove forgets a room of this process; the store keeps its line.
func (c *Core) Remove(id string) { panic("soon") }

// Run ticks the rooms and sends their batches until ctx ends; it then sends
// what is pending (heartbeats, joins) and returns nil.
func (c *Core) Run(ctx context.Context) error { panic("soon") }

// Up says whether the store answered lately.
func (c *Core) Up() bool { panic("soon") }

// Room is one line. All methods may be called from any goroutine.
type Room struct{ log *slog.Logger }

func (r *Room) ID() string { panic("soon") }

// Snapshot is the newest one; never nil.
func (r *Room) Snapshot() *Snapshot { panic("soon") }

// Age is how long ago the snapshot was built, seen from here.
func (r *Room) Age() time.Duration { panic("soon") }

// Now is room time in microseconds, estimated since the last snapshot.
func (r *Room) Now() int64 { panic("soon") }

// RedisNow is Redis's clock in microseconds, estimated likewise; tokens' iat and exp are
// seconds of it. This machine's own clock until the store was heard.
func (r *Room) RedisNow() int64 { panic("soon") }

// Position of an order in line: how many are ahead (0: next) by the snapshot,
// with those that arrived and are not enrolled yet.
func (r *Room) Ahead(order int64) int64 { panic("soon") }

// Arrival asks for a place, or to be let in at once.
type Arrival struct {
	ID     ID // random, or derived from an account or an idempotency key
	Client Client
	// Keyed: the id is derived, so the store may know it; it is always asked.
	Keyed    bool
	Interval time.Duration // first advised polling interval
}

// Join gives an arrival a place in line, or lets it in at once when there is
// capacity and nobody ahead (Standing.State is Active: claimed already by its Client). While there is a long line it makes no store
// call. A keyed id that is known answers with its Standing as it is.
func (r *Room) Join(ctx context.Context, a Arrival) (Standing, Refusal, error) { panic("soon") }

// Check answers a poll: from the snapshot or from memory where DESIGN §4 allows
// it, otherwise from the store in a batch. A ticket that is not enrolled
// is enrolled. It errs only when the store is needed and there is no honest
// answer without it; a waiting ticket is answered as waiting (Offline).
func (r *Room) Check(ctx context.Context, t Ticket) (Standing, error) { panic("soon") }

// Claim turns an admitted ticket into a session. Standing.State is Active for
// the claimer (again within the claim window for the same Client), Waiting with ErrNotYet before
// its turn, else Lapsed, Ended or Expired with no error.
func (r *Room) Claim(ctx context.Context, t Ticket) (Standing, error) { panic("soon") }

// Leave gives a place (or an unclaimed admission) back.
func (r *Room) Leave(ctx context.Context, t Ticket) error { panic("soon") }

// Charge takes one unit of the limiter for a request that gets no session (a
// subresource without a pass): true while nobody waits and there is capacity.
func (r *Room) Charge(ctx context.Context) bool { panic("soon") }

// Touch is the heartbeat of a session; it is sent later, in a batch. off says that the pass was
// minted or renewed without the store.
func (r *Room) Touch(sid ID, off bool) { panic("soon") }

// Revoked says whether a session was ended by an operator or its origin, from
// memory that is at most about a second old.
func (r *Room) Revoked(sid ID) bool { panic("soon") }

// Revoke ends a session everywhere within a second.
func (r *Room) Revoke(ctx context.Context, sid ID) error { panic("soon") }

// What operators do. who is written to the audit log.

func (r *Room) Patch(ctx context.Context, who string, change Live) error    { panic("soon") }
func (r *Room) Pause(ctx context.Context, who string) error                 { panic("soon") }
func (r *Room) Resume(ctx context.Context, who string) error                { panic("soon") }
func (r *Room) Drain(ctx context.Context, who string) error                 { panic("soon") }
func (r *Room) Reset(ctx context.Context, who string) error                 { panic("soon") }
func (r *Room) RemoveTicket(ctx context.Context, who string, id ID) error   { panic("soon") }
func (r *Room) RevokeSession(ctx context.Context, who string, sid ID) error { panic("soon") }

// Lookup tells of one ticket without touching it; ErrUnknown.
func (r *Room) Lookup(ctx context.Context, id ID) (Found, error) { panic("soon") }

// Found is what the store holds of a ticket.
type Found struct {
	State      State
	Reason     string
	Parked     bool
	Order      int64 // room time, µs; 0 unless waiting
	Seen       int64
	Ahead      int64 // exact, at the time of asking; only when waiting
	AdmittedAt int64 // Redis's clock, µs
}

// Minute is one bucket of a room's history.
type Minute struct {
	At                           int64 // start, seconds of Redis's clock
	Joins, Admissions, Abandoned int64
	Waiting                      int64 // at its end
	Rate                         int64 // thousandths, in force at its end
	WaitP50, WaitP90             time.Duration
}

// History gives the last n minutes, oldest first, at most 1440.
func (r *Room) History(ctx context.Context, minutes int) ([]Minute, error) { panic("soon") }

// Entry is one line of the audit log.
type Entry struct {
	At     int64 // seconds of Redis's clock
	Who    string
	Room   string
	Action string
	Before string // JSON
	After  string // JSON
}

// Audit gives the newest entries of all rooms of this process, newest first.
func (c *Core) Audit(ctx context.Context, limit int) ([]Entry, error) { panic("soon") }

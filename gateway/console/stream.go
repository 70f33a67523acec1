package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/anteroom/anteroom/admission/reason"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/internal/ophttp"
)

const (
	streamsMost = 64                     // of one gateway
	streamsOne  = streamsMost / 2        // of one person
	frameEvery  = time.Second            // between two frames without a change
	lookEvery   = 100 * time.Millisecond // for a change
	fleetEvery  = 2 * time.Second        // between two events of the fleet
	streamRetry = 5 * time.Second
)

// openStreams counts the open streams of each person. The zero value is ready.
type openStreams struct {
	mu  sync.Mutex
	of  map[string]int
	all int
}

// take counts one more stream of a person. It reports false if the gateway has streamsMost, or the person streamsOne: the holder of one
// token must not keep all others from the console.
func (o *openStreams) take(person string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all >= streamsMost || o.of[person] >= streamsOne {
		return false
	}
	if o.of == nil {
		o.of = map[string]int{}
	}
	o.of[person]++
	o.all++
	return true
}

func (o *openStreams) release(person string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all--
	if o.of[person]--; o.of[person] == 0 {
		delete(o.of, person)
	}
}

// frames makes the frame of the rooms once for all streams. The zero value is ready.
type frames struct {
	open openStreams

	mu      sync.Mutex
	seq     int64
	at      time.Time
	changed string // the versions of the rooms' live changes
	rooms   []frame
}

// frame is a room in a frame.
type frame struct {
	id   string
	json []byte
}

// liveView is a room as the stream shows it.
type liveView struct {
	ID           string      `json:"id"`
	State        string      `json:"state"`
	Reason       *reasonView `json:"reason"`
	Waiting      int64       `json:"waiting"`
	Parked       int64       `json:"parked"`
	Admitted     int64       `json:"admitted"`
	Inside       int64       `json:"inside"`
	MaxActive    int64       `json:"max_active,omitempty"`
	Limit        thousandth  `json:"limit"`
	Wanted       thousandth  `json:"wanted,omitempty"`
	Expected     thousandth  `json:"expected"`
	AdmittedRate *float64    `json:"admitted_rate,omitempty"`
	ClaimedRate  *float64    `json:"claimed_rate,omitempty"`
	JoinRate     *float64    `json:"join_rate,omitempty"`
	AbandonRate  *float64    `json:"abandon_rate,omitempty"`
	Wait         *etaView    `json:"wait,omitempty"`
	EmptyAt      *timestamp  `json:"empty_at,omitempty"`
	Abandonment  *float64    `json:"abandonment,omitempty"`
	Origin       liveOrigin  `json:"origin"`
	Paused       bool        `json:"paused"`
	Draining     bool        `json:"draining"`
	Message      string      `json:"message"`
	Version      int64       `json:"version"`
	StoreAge     *float64    `json:"store_age_seconds,omitempty"`
}

type liveOrigin struct {
	ID        string   `json:"id"`
	P95       float64  `json:"p95_seconds"`
	TargetP95 float64  `json:"target_p95_seconds,omitempty"`
	ErrorRate float64  `json:"error_rate"`
	InFlight  *int64   `json:"in_flight,omitempty"`
	MaxErrors *float64 `json:"max_error_rate,omitempty"`
}

// stateOf returns the word for the state of a room.
func stateOf(r *reasonView) string {
	switch r.Code {
	case reason.StoreUnknown, reason.StoreAway:
		return "store_away"
	case reason.Off, reason.Passthrough:
		return "open"
	case reason.SoldOut, reason.Closed:
		return "closed"
	case reason.Paused:
		return "paused"
	case reason.BeforeOpening:
		return "waiting_to_open"
	case reason.NobodyWaits, reason.Draining:
		return "idle"
	}
	if r.Admitting {
		return "admitting"
	}
	return "not_admitting"
}

// live returns a room as the stream shows it.
func (c insights) live(room Room) liveView {
	q := room.Queue
	s, now := q.Snapshot(), q.RedisNow()
	p := &s.Policy
	v := liveView{
		ID: q.ID(), Reason: c.why(room), Waiting: s.Waiting, Parked: s.Parked, Admitted: s.Admitted, Inside: s.Admitted + s.Active,
		MaxActive: p.MaxActive, Limit: thousandth(p.Rate), Expected: thousandth(q.Expected()), Paused: p.Paused, Draining: p.Draining,
		Message: p.Message, Version: s.Version, Origin: liveOrigin{ID: room.Origin},
	}
	v.State = stateOf(v.Reason)
	if s.Known {
		v.StoreAge = new(tidy(q.Age().Seconds()))
	}
	if rates := c.o.Insight.Recorder.Rates(q); rates.Known {
		v.AdmittedRate, v.ClaimedRate, v.JoinRate, v.AbandonRate = new(tidy(rates.Admissions)), new(tidy(rates.Claims)), new(tidy(rates.Joins)), new(tidy(rates.Abandoned))
		if rates.Left > 0 {
			v.Abandonment = new(tidy(rates.Abandonment))
		}
		if rates.EmptyIn > 0 {
			v.EmptyAt = optional(now + rates.EmptyIn*1e6)
		}
	}
	if room.Wait != nil {
		v.Wait = viewEstimate(room.Wait())
	}
	if c.o.OriginStats != nil {
		if p95, failed := c.o.OriginStats(room.Origin); finite(p95) && finite(failed) {
			v.Origin.P95, v.Origin.ErrorRate = tidy(p95), tidy(failed)
		}
	}
	if n, known := c.o.Insight.Fleet.InFlight(room.Origin); known {
		v.Origin.InFlight = &n
	}
	if at := q.Steering(); at != nil {
		v.Wanted, v.Origin.TargetP95, v.Origin.MaxErrors = thousandth(s.Target), tidy(p.Adaptive.TargetP95.Seconds()), new(p.Adaptive.MaxErrorRate)
		if at.Origin.Requests > 0 {
			v.Origin.P95, v.Origin.ErrorRate = tidy(at.Origin.P95.Seconds()), tidy(at.Origin.ErrorRate())
		}
	}
	return v
}

// next returns the newest frame. It makes a new one after frameEvery, and at once after a live change.
func (f *frames) next(c insights) (seq int64, rooms []frame, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all, now := c.o.Rooms(), time.Now()
	changed := ""
	for _, room := range all {
		s := room.Queue.Snapshot()
		changed += fmt.Sprint(room.Queue.ID(), s.Version, s.Known, room.Queue.Reachable(), ";")
	}
	if f.seq > 0 && changed == f.changed && now.Sub(f.at) < frameEvery && now.Sub(f.at) >= 0 {
		return f.seq, f.rooms, nil
	}
	rooms = make([]frame, 0, len(all))
	for _, room := range all {
		text, err := json.Marshal(c.live(room))
		if err != nil {
			return 0, nil, err
		}
		rooms = append(rooms, frame{room.Queue.ID(), text})
	}
	f.seq, f.at, f.changed, f.rooms = f.seq+1, now, changed, rooms
	return f.seq, rooms, nil
}

// storeTime returns Redis's clock, on which recorded figures are; without a room this machine's.
func (c insights) storeTime() timestamp {
	for _, room := range c.o.Rooms() {
		return timestamp(room.Queue.RedisNow())
	}
	return timestamp(c.o.Now().UnixMicro())
}

// stream sends the rooms and the fleet as server-sent events until the client leaves, or may not read them any more.
func (c insights) stream(w http.ResponseWriter, r *http.Request, who *access.Person) error {
	if !c.frames.open.take(unique(who)) {
		p := ophttp.NewProblem(http.StatusServiceUnavailable, "too_many_streams", "this gateway allows %d open streams, and %d of one person; close one or use another gateway", streamsMost, streamsOne)
		p.RetryAfter = streamRetry
		return p
	}
	defer c.frames.open.release(unique(who))
	flow := ophttp.Flowing(w, c.o.Idle)
	flow.Header().Set("Content-Type", "text/event-stream")
	flow.Header().Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return nil
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var sent int64
	var fleetAt time.Time
	for {
		seq, rooms, err := c.frames.next(c)
		if err != nil {
			return err
		}
		now := time.Now()
		if seq != sent {
			sent = seq
			if err := writeRooms(flow, rooms, who, c.storeTime()); err != nil {
				return nil // the client has left
			}
			flow.Send()
		}
		if now.Sub(fleetAt) >= fleetEvery {
			fleetAt = now
			if who, err = c.admitAgain(r, who); err != nil || !who.Has(access.Viewer) { // a reload may have removed the token, or changed its rooms
				return nil // the client learns why when it opens the next stream
			}
			text, err := json.Marshal(c.viewFleet(who))
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(flow, "event: fleet\ndata: %s\n\n", text); err != nil {
				return nil // the client has left
			}
			flow.Send()
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-look.C:
		}
	}
}

// writeRooms writes the rooms that an operator may see.
func writeRooms(w http.ResponseWriter, rooms []frame, who *access.Person, at timestamp) error {
	moment, err := at.MarshalJSON()
	if err != nil {
		return err
	}
	var seen [][]byte
	for _, f := range rooms {
		if who.May(access.Viewer, f.id) {
			seen = append(seen, f.json)
		}
	}
	_, err = fmt.Fprintf(w, "event: rooms\ndata: {\"at\":%s,\"rooms\":[%s]}\n\n", moment, bytes.Join(seen, []byte{','}))
	return err
}

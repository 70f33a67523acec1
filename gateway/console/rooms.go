package console

import (
	"cmp"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// roomView is a room as the API shows it. Unknown values are absent.
type roomView struct {
	ID         string        `json:"id"`
	Policy     policyView    `json:"policy"`
	Live       policyView    `json:"live"`
	Waiting    int64         `json:"waiting"`
	Parked     int64         `json:"parked"`
	Admitted   int64         `json:"admitted"`
	Active     int64         `json:"active"`
	Rate       thousandth    `json:"rate"`
	OldestWait float64       `json:"oldest_wait_seconds"`
	ETA        *etaView      `json:"eta,omitempty"`
	ETAError   *float64      `json:"eta_error,omitempty"`
	Coverage   *float64      `json:"eta_coverage,omitempty"`
	Origin     originView    `json:"origin"`
	Adaptive   *adaptiveView `json:"adaptive,omitempty"`
	Budget     *budgetView   `json:"budget,omitempty"`
	Guard      *guardView    `json:"guard,omitempty"`
	Levels     []string      `json:"challenge_levels,omitempty"` // that can be set
	StoreAge   *float64      `json:"store_age_seconds,omitempty"`
	Paused     bool          `json:"paused"`
	Draining   bool          `json:"draining"`

	Facts   *factsSummary `json:"facts,omitempty"`
	SoldOut bool          `json:"sold_out"` // closed for that reason

	Reason    *reasonView  `json:"reason,omitempty"`
	Evacuated *timestamp   `json:"evacuated_at,omitempty"`
	Ramp      *rampView    `json:"ramp,omitempty"`
	Alarms    []alarmView  `json:"alarms,omitempty"`
	Event     *eventView   `json:"event,omitempty"` // in force
	NextEvent *eventView   `json:"next_event,omitempty"`
	Lottery   *lotteryView `json:"lottery,omitempty"`
}

type etaView struct {
	Seconds int64 `json:"seconds"`
	Low     int64 `json:"low"`
	High    int64 `json:"high"`
}

// budgetView is the origin's budget and the part that the room may expect while it has a queue.
type budgetView struct {
	Rate     thousandth `json:"rate"`
	Expected thousandth `json:"expected"`
	Rooms    int64      `json:"rooms_waiting"`
}

// guardView is the cost of joining; totals are this gateway's.
type guardView struct {
	Number  int64            `json:"proof_number"`
	Proofs  int64            `json:"proofs"`
	Refused map[string]int64 `json:"joins_refused"`
}

type originView struct {
	P95       float64 `json:"p95_seconds"`
	ErrorRate float64 `json:"error_rate"`
}

// adaptiveView is the input and state of an adaptive room's rate control.
type adaptiveView struct {
	Target    thousandth `json:"target,omitempty"` // the controller's rate
	State     string     `json:"state"`            // unknown healthy strained unhealthy
	Mode      string     `json:"mode"`
	Shadow    bool       `json:"shadow"`
	Pinned    bool       `json:"pinned"` // an operator has set the rate
	MinRate   thousandth `json:"min_rate"`
	MaxRate   thousandth `json:"max_rate"`
	P95       float64    `json:"p95_seconds"`
	TargetP95 float64    `json:"target_p95_seconds"`
	ErrorRate float64    `json:"error_rate"`
	MaxErrors float64    `json:"max_error_rate"`
	Requests  int64      `json:"requests"`
	Window    float64    `json:"window_seconds"`
	Gateways  int        `json:"gateways"`
	Score     *float64   `json:"score,omitempty"`
	AtMin     float64    `json:"at_min_rate_seconds,omitempty"`
	Unmoved   bool       `json:"unmoved,omitempty"` // the origin stays unhealthy at the lowest rate
}

func adaptive(queue *admission.Room, s *admission.Snapshot) *adaptiveView {
	at := queue.Steering()
	if at == nil {
		return nil
	}
	a := s.Policy.Adaptive
	v := &adaptiveView{
		Target: thousandth(s.Target), State: at.Level.String(), Mode: a.Mode, Shadow: a.Shadow, Pinned: slices.Contains(s.Live, "rate"),
		MinRate: thousandth(s.Policy.MinRate), MaxRate: thousandth(s.Policy.MaxRate), MaxErrors: a.MaxErrorRate,
		P95: tidy(at.Origin.P95.Seconds()), TargetP95: tidy(a.TargetP95.Seconds()), ErrorRate: tidy(at.Origin.ErrorRate()),
		AtMin: tidy(at.AtMin.Seconds()), Unmoved: at.AtMin >= admission.Unmoved,
		Requests: at.Origin.Requests, Window: at.Origin.Span.Seconds(), Gateways: at.Origin.Gateways,
	}
	if at.Origin.Scored {
		v.Score = new(tidy(at.Origin.Score))
	}
	return v
}

// policyView is a policy: the live fields in the form of PATCH, the others nested as in the configuration file. In
// the room's live it has only the fields changed live, so that it could be sent as a PATCH.
type policyView struct {
	Rate         *thousandth    `json:"rate,omitempty"`
	Burst        *thousandth    `json:"burst,omitempty"`
	MaxActive    *int64         `json:"max_active,omitempty"`
	Paused       *bool          `json:"paused,omitempty"`
	Draining     *bool          `json:"draining,omitempty"`
	Message      *string        `json:"message,omitempty"`
	Method       *string        `json:"method,omitempty"`
	OnSoldOut    *string        `json:"on_sold_out,omitempty"`
	Challenge    *string        `json:"challenge,omitempty"`
	Session      *sessionView   `json:"session,omitempty"`
	Enabled      *bool          `json:"enabled,omitempty"`
	OnStoreError *string        `json:"on_store_error,omitempty"`
	Admission    *admissionView `json:"admission,omitempty"`
	Queue        *queueView     `json:"queue,omitempty"`
}

type admissionView struct {
	Strategy   string   `json:"strategy"`
	MinWait    duration `json:"min_wait"`
	HeadWindow int64    `json:"head_window"`
}

type queueView struct {
	Absence     duration `json:"absence"`
	ClaimWindow duration `json:"claim_window"`
	Capacity    int64    `json:"capacity"`
}

type sessionView struct {
	TTL duration `json:"ttl"`
}

// thousandth is written as a decimal with up to three places: 2500 is 2.5.
type thousandth int64

func (t thousandth) String() string {
	sign, n := "", uint64(t)
	if t < 0 {
		sign, n = "-", -n
	}
	whole := strconv.FormatUint(n/1000, 10)
	fraction := strings.TrimRight(strconv.FormatUint(1000+n%1000, 10)[1:], "0")
	if fraction == "" {
		return sign + whole
	}
	return sign + whole + "." + fraction
}

// MarshalJSON writes the decimal as a JSON number.
func (t thousandth) MarshalJSON() ([]byte, error) { return []byte(t.String()), nil }

// duration is written as Go writes it: "5m0s".
type duration time.Duration

// MarshalJSON writes the duration as text.
func (d duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

func fullPolicy(p admission.Policy) policyView {
	rate, burst, onSoldOut, challenge := thousandth(p.Rate), thousandth(p.Burst), "keep", cmp.Or(p.Challenge, "none")
	if p.SoldOutCloses {
		onSoldOut = "close"
	}
	return policyView{
		Rate: &rate, Burst: &burst, MaxActive: &p.MaxActive, Paused: &p.Paused, Draining: &p.Draining,
		Message: &p.Message, Method: &p.Method, OnSoldOut: &onSoldOut, Challenge: &challenge, Session: &sessionView{TTL: duration(p.SessionTTL)}, Enabled: &p.Enabled,
		OnStoreError: &p.OnStoreError,
		Admission:    &admissionView{Strategy: string(cmp.Or(p.Strategy, admission.StrategyTokenBucket)), MinWait: duration(p.MinWait), HeadWindow: p.HeadWindow},
		Queue:        &queueView{Absence: duration(p.Absence), ClaimWindow: duration(p.ClaimWindow), Capacity: p.Capacity},
	}
}

// livePolicy returns the named fields.
func livePolicy(p admission.Policy, names []string) policyView {
	full := fullPolicy(p)
	var v policyView
	for _, name := range names {
		switch name {
		case "rate":
			v.Rate = full.Rate
		case "burst":
			v.Burst = full.Burst
		case "max_active":
			v.MaxActive = full.MaxActive
		case "paused":
			v.Paused = full.Paused
		case "draining":
			v.Draining = full.Draining
		case "message":
			v.Message = full.Message
		case "method":
			v.Method = full.Method
		case "on_sold_out":
			v.OnSoldOut = full.OnSoldOut
		case "challenge":
			v.Challenge = full.Challenge
		case "session.ttl":
			v.Session = full.Session
		case "enabled":
			v.Enabled = full.Enabled
		}
	}
	return v
}

func (c *Console) view(room Room) roomView {
	return c.viewOf(room, room.Queue.Snapshot(), room.Queue.Now(), room.Queue.Age())
}

// viewOf returns the view of a snapshot of that age at that room time.
func (c *Console) viewOf(room Room, s *admission.Snapshot, now int64, age time.Duration) roomView {
	p := s.Policy
	if !s.Known {
		p = room.File // until the first snapshot
	}
	v := roomView{
		ID: room.Queue.ID(), Policy: fullPolicy(p), Live: livePolicy(p, s.Live),
		Waiting: s.Waiting, Parked: s.Parked, Admitted: s.Admitted, Active: s.Active,
		Rate: measuredRate(s, now), Paused: p.Paused, Draining: p.Draining,
	}
	v.Facts, v.SoldOut = summarize(&s.Facts), p.SoldOut
	if s.Oldest > 0 {
		v.OldestWait = tidy(float64(max(0, now-max(s.Oldest, s.Drawn))) / 1e6) // drawn tickets have waited since the opening
	}
	v.Evacuated, v.Ramp = optional(s.Evacuation.At), recentRamp(room.Queue)
	v.Alarms = viewAlarms(room.Queue)
	event, next := room.Queue.Scheduled().Plan.Events(room.Queue.RedisNow())
	v.Event, v.NextEvent, v.Lottery = viewEvent(event), viewEvent(next), viewLottery(s, &p)
	if room.Wait != nil {
		v.ETA = viewEstimate(room.Wait())
	}
	v.ETAError, v.Coverage = known(room.WaitError), known(room.WaitCoverage)
	if c.o.OriginStats != nil {
		p95, errorRate := c.o.OriginStats(room.Origin)
		if finite(p95) && finite(errorRate) {
			v.Origin = originView{P95: tidy(p95), ErrorRate: tidy(errorRate)}
		}
	}
	if room.Guard != nil {
		if g, there := room.Guard(); there {
			v.Guard = &guardView{Number: g.Number, Proofs: g.Proofs, Refused: g.Refused}
		}
	}
	if b := room.File.Budget; room.File.Budgeted {
		use, _ := c.o.Core.BudgetUse(b.Origin)
		v.Budget = &budgetView{Rate: thousandth(b.Rate), Expected: thousandth(room.Queue.Expected()), Rooms: use.Queues}
	}
	v.Levels = room.Levels
	v.Adaptive = adaptive(room.Queue, s)
	v.Reason = insights{c}.why(room)
	if s.Known {
		v.StoreAge = new(tidy(age.Seconds()))
	}
	return v
}

// known returns the value of get, nil while it is unknown. get may be nil.
func known(get func() (float64, bool)) *float64 {
	if get == nil {
		return nil
	}
	value, ok := get()
	if !ok || !finite(value) {
		return nil
	}
	return new(tidy(value))
}

// rateWindow is the window of the measured rate, in seconds.
const rateWindow = 60

// measuredRate returns admissions a second over the last minute, or since the queue or the room's flow began if that
// is shorter: admissions without a queue are no measure of its rate.
func measuredRate(s *admission.Snapshot, now int64) thousandth {
	if !s.Known {
		return 0
	}
	second := now / 1e6
	from := max(second-rateWindow+1, s.Since/1e6)
	if s.Waiting > 0 {
		from = max(from, queuedSince(s.Flow, second))
	}
	var admitted int64
	for i := len(s.Flow) - 1; i >= 0 && s.Flow[i].Second >= from; i-- {
		admitted += s.Flow[i].Admitted
	}
	window := max(1, second-from+1)
	return thousandth((admitted*1000 + window/2) / window)
}

// queuedSince returns the first of the latest consecutive seconds in which a visitor waited.
func queuedSince(flow []admission.Flow, now int64) int64 {
	since := now
	for i := len(flow) - 1; i >= 0 && flow[i].Second >= since-1 && (flow[i].Busy > 0 || flow[i].Second == now); i-- {
		since = flow[i].Second
	}
	return since
}

func seconds(s float64) int64 { return int64(math.Round(min(s, 1e9))) }

// tidy rounds to three decimal places.
func tidy(f float64) float64 { return math.Round(f*1000)/1000 + 0 } // + 0: JSON would show -0

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

func (c *Console) listRooms(w http.ResponseWriter, _ *http.Request, who *access.Person) error {
	list := struct {
		Rooms []roomView `json:"rooms"`
	}{Rooms: []roomView{}}
	for _, room := range c.o.Rooms() {
		if who.May(access.Viewer, room.Queue.ID()) {
			list.Rooms = append(list.Rooms, c.view(room))
		}
	}
	return ophttp.OK(w, list)
}

// roomHandler is a handler for the room in the path.
type roomHandler func(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error

func (c *Console) inRoom(h roomHandler) handler {
	return func(w http.ResponseWriter, r *http.Request, who *access.Person) error {
		id := r.PathValue("id")
		for _, room := range c.o.Rooms() {
			if room.Queue.ID() == id {
				return h(w, r, who, room)
			}
		}
		return ophttp.NewProblem(http.StatusNotFound, "unknown_room", "the configuration has no room with the id %q", id)
	}
}

func (c *Console) showRoom(w http.ResponseWriter, _ *http.Request, _ *access.Person, room Room) error {
	return ophttp.OK(w, c.view(room))
}

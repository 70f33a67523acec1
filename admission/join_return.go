package admission

// Return holds the claims of the pass of an ended session.
type Return struct {
	Session ID
	Order   int64 // order time at which the visitor arrived, µs; 0: not known
	Fence   int64 // the room's fence then; 0: not known
	Began   int64 // when the session began, in seconds of Redis's clock
	Ended   int64 // when the pass ended, likewise
	Live    bool  // the pass has not ended, but its session, by silence; the store knows when

	Evacuated bool // an evacuation has ended the session
}

// arg returns the pass as room_enter takes it.
func (b *Return) arg() string {
	if b == nil {
		return ""
	}
	ended := b.Ended
	if b.Live {
		ended = 0
	}
	return string(b.Session[:]) + itoa(b.Order) + ":" + itoa(b.Fence) + ":" + itoa(ended) + ":" + bit(b.Evacuated)
}

// keeps reports whether a pass may keep its order, as far as this gateway knows: its fence is the room's, and it ended within
// absence, not counting the silences of the store. No order survives a draw.
func (r *joins) keeps(s *Snapshot, b *Return) bool {
	known := r.store.knowledge()
	switch {
	case b.Fence <= 0 || b.Fence < max(s.Fence, known.fence), b.Order <= known.reset, s.Gathering():
		return false
	case s.Policy.Method == Lottery && b.Order < s.Drawn && b.Began < s.Opens/1e6:
		return false
	}
	lead := r.view.orderLead()
	return s.Elapsed(b.Ended*1e6+lead, r.view.RedisNow()+lead) <= s.Policy.Absence
}

package admission

import "time"

// FixedWindow counts what was taken in the present window, lua/lib/limiter.lua's in Go: what Rate thousandths of a token a second give in an
// aligned window, or at rates below one a window one token in as many microseconds as it takes. It has no burst. At is the
// start of the window, Level the thousandths of a token taken in it. A cost above a window's is granted in an
// untouched one and uses up as many as it takes: At is then the start of the last of them. A clock that went back stays in
// the newest window.
type FixedWindow struct {
	Level, At, Rate int64
	Window          int64 // microseconds; 0: one second

	now int64
	was int64 // the rate that Level and At were counted at, where it is another
}

// window is its length in microseconds and what it grants in thousandths of a token.
func (w *FixedWindow) window() (length, most int64) {
	length, most = 1_000_000, w.Rate
	if w.Window > 0 {
		length, most = w.Window, w.Rate*w.Window/1_000_000
	}
	if most <= 0 || most >= 1000 {
		return length, most
	}
	return (billion + w.Rate - 1) / w.Rate, 1000
}

// Refill begins a new window when the present one has passed.
func (w *FixedWindow) Refill(now int64) {
	w.now = now
	length, _ := w.window()
	if start := now - now%length; start > w.At {
		w.At, w.Level = start, 0
	}
	if w.was == 0 || w.Rate <= 0 {
		return
	}
	if w.was != w.Rate && w.At > now {
		before := FixedWindow{Rate: w.was, Window: w.Window}
		passed, granted := before.window()
		w.Level += (w.At - now + passed - 1) / passed * granted
		w.At = now - now%length
		w.spread()
	}
	w.was = 0
}

// spread moves what is above one window's to the windows after it.
func (w *FixedWindow) spread() {
	if length, most := w.window(); w.Level > most {
		w.At += (w.Level - 1) / most * length
		w.Level = most
	}
}

// Available is how many whole tokens the window has left.
func (w *FixedWindow) Available() int64 {
	_, most := w.window()
	return max(0, most-w.Level) / 1000
}

// Admits says whether the window has room for a cost, or is untouched.
func (w *FixedWindow) Admits(cost int64) bool {
	_, most := w.window()
	return most > 0 && (w.Level == 0 || w.Level+cost*1000 <= most)
}

// Take counts n tokens.
func (w *FixedWindow) Take(n int64) {
	if w.Level += n * 1000; n > 0 {
		w.spread()
	}
}

// Wait is the time until a cost is granted: now or in the next window; -1 at rate 0.
func (w *FixedWindow) Wait(cost int64) time.Duration {
	switch {
	case w.Rate <= 0:
		return -1
	case w.Admits(cost):
		return 0
	}
	length, _ := w.window() // At may lie in one that began under another rate
	return time.Duration(w.At-w.At%length+length-w.now) * time.Microsecond
}

// Rerate goes on with what was taken in the present window, and with what a cost has used up of those to come.
func (w *FixedWindow) Rerate(rate, _ int64) {
	if w.was == 0 && rate != w.Rate {
		w.was = w.Rate
	}
	w.Rate = rate
}

package limiter

import "time"

// FixedWindow grants Rate in each aligned window, without a burst. A window lasts one second, or at rates below one token
// a window as long as one token takes. At is the start of the current window and Level the thousandths of a token taken in it.
// A cost above a window's grant is granted in an unused window and uses up several: At is then the start of the last one.
// A clock that went back stays in the newest window.
type FixedWindow struct {
	Level, At, Rate int64
	Window          int64 // µs; 0: one second

	now int64
	was int64 // the rate that Level and At were counted at, where it differs from Rate; 0: it does not
}

// window returns the length of a window in microseconds and its grant in thousandths of a token.
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

// Refill begins a new window when the current one has passed.
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

// spread moves what exceeds one window's grant to the windows after it.
func (w *FixedWindow) spread() {
	if length, most := w.window(); w.Level > most {
		w.At += (w.Level - 1) / most * length
		w.Level = most
	}
}

// Available returns how many whole tokens the window has left.
func (w *FixedWindow) Available() int64 {
	_, most := w.window()
	return max(0, most-w.Level) / 1000
}

// Admits reports whether the window has room for cost, or is unused.
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

// Wait returns the time until cost is granted, now or in the next window; -1 at rate 0.
func (w *FixedWindow) Wait(cost int64) time.Duration {
	switch {
	case w.Rate <= 0:
		return -1
	case w.Admits(cost):
		return 0
	}
	length, _ := w.window() // At may lie in a window that began under another rate
	return time.Duration(w.At-w.At%length+length-w.now) * time.Microsecond
}

// Rerate changes the rate. What was taken in the current window, and from windows to come, still counts.
func (w *FixedWindow) Rerate(rate, _ int64) {
	if w.was == 0 && rate != w.Rate {
		w.was = w.Rate
	}
	w.Rate = rate
}

// Exhaust marks the current window as used up.
func (w *FixedWindow) Exhaust() { _, w.Level = w.window() }

package api

import "sync"

// shares counts what requests hold of something that this process has a limited amount of, by token, so that the
// requests of one token leave some for others.
type shares struct {
	mu   sync.Mutex
	most int64
	used int64
	by   map[string]int64 // by the name of a token
}

func newShares(most int64) *shares { return &shares{most: most, by: map[string]int64{}} }

// take reports whether who may hold n more, and counts them. When half is in use, a token gets no more than a quarter;
// the operators' token gets all that is left.
func (s *shares) take(who identity, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used+n > s.most || !who.admin && s.used+n > s.most/2 && s.by[who.name]+n > s.most/4 {
		return false
	}
	s.used += n
	s.by[who.name] += n
	return true
}

// free returns what who has taken.
func (s *shares) free(who identity, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	if s.by[who.name] -= n; s.by[who.name] == 0 {
		delete(s.by, who.name)
	}
}

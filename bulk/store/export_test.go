package store

// Old makes a store count as one that has dispatched for a long time.
func (s *Store) Old() { s.rounds.first = 1 }

package http1

import (
	"hash/maphash"
	"slices"
)

// maxListed is the largest number of elements in the lists of a request's Connection, and of its Trailer.
const maxListed = 32

// FieldNames is a set of field names, without regard to case. It keeps a hash of each name, so a lookup costs the
// length of that name however many names the set has. The hashes are seeded at random; if two names share one, the
// set has both, as if the sender had listed both.
type FieldNames struct {
	Hashes   []uint64
	unsorted bool
}

var nameSeed = maphash.Bytes(maphash.MakeSeed(), nil)

// hashName returns the seeded hash of a name, without regard to case.
func hashName(name []byte) uint64 {
	h := nameSeed
	for _, c := range name {
		h = (h ^ uint64(lowerTable[c])) * 0x9e3779b97f4a7c15
		h ^= h >> 32
	}
	return h
}

func (s *FieldNames) add(name []byte) {
	s.unsorted = len(s.Hashes) > 0
	s.Hashes = append(s.Hashes, hashName(name))
}

// Any reports whether the set has a name.
func (s *FieldNames) Any() bool { return len(s.Hashes) > 0 }

// Has reports whether the set has a name.
func (s *FieldNames) Has(name []byte) bool { return len(s.Hashes) > 0 && s.find(name) }

func (s *FieldNames) find(name []byte) bool {
	if s.unsorted {
		slices.Sort(s.Hashes)
		s.unsorted = false
	}
	_, found := slices.BinarySearch(s.Hashes, hashName(name))
	return found
}

// Emptied returns an empty set that reuses the memory of s, unless that is unusually large.
func (s *FieldNames) Emptied() FieldNames {
	if cap(s.Hashes) > 2*maxListed {
		return FieldNames{}
	}
	return FieldNames{Hashes: s.Hashes[:0]}
}

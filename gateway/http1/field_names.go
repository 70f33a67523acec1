package http1

import (
	"hash/maphash"
	"slices"
)

// maxListed is the highest number of elements in the lists of a request's Connection, and of its Trailer.
const maxListed = 32

// fieldNames is a set of header field names, without regard to case. It keeps a hash of each name, so a lookup costs the
// length of the name that is looked up, however many names the set has. The hashes are seeded at random; two names that
// share one are a name that the sender could have listed as well.
type FieldNames struct {
	Hashes   []uint64
	unsorted bool
}

var nameSeed = maphash.Bytes(maphash.MakeSeed(), nil)

// hashName returns the seeded hash of a name in lower case.
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

func (s *FieldNames) Any() bool { return len(s.Hashes) > 0 }

func (s *FieldNames) Has(name []byte) bool { return len(s.Hashes) > 0 && s.find(name) }

func (s *FieldNames) find(name []byte) bool {
	if s.unsorted {
		slices.Sort(s.Hashes)
		s.unsorted = false
	}
	_, found := slices.BinarySearch(s.Hashes, hashName(name))
	return found
}

// emptied returns an empty set in the memory of s, unless that is more than most requests and answers need.
func (s *FieldNames) Emptied() FieldNames {
	if cap(s.Hashes) > 2*maxListed {
		return FieldNames{}
	}
	return FieldNames{Hashes: s.Hashes[:0]}
}

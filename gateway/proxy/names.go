package proxy

import (
	"hash/maphash"
	"slices"
)

// maxListed is the highest number of elements in the lists of a request's Connection, and of its Trailer.
const maxListed = 32

// fieldNames is a set of header field names, without regard to case. It keeps a hash of each name, so a lookup costs the
// length of the name that is looked up, however many names the set has. The hashes are seeded at random; two names that
// share one are a name that the sender could have listed as well.
type fieldNames struct {
	hashes   []uint64
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

func (s *fieldNames) add(name []byte) {
	s.unsorted = len(s.hashes) > 0
	s.hashes = append(s.hashes, hashName(name))
}

func (s *fieldNames) any() bool { return len(s.hashes) > 0 }

func (s *fieldNames) has(name []byte) bool { return len(s.hashes) > 0 && s.find(name) }

func (s *fieldNames) find(name []byte) bool {
	if s.unsorted {
		slices.Sort(s.hashes)
		s.unsorted = false
	}
	_, found := slices.BinarySearch(s.hashes, hashName(name))
	return found
}

// emptied returns an empty set in the memory of s, unless that is more than most requests and answers need.
func (s *fieldNames) emptied() fieldNames {
	if cap(s.hashes) > 2*maxListed {
		return fieldNames{}
	}
	return fieldNames{hashes: s.hashes[:0]}
}

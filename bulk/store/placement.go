package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// placement is the list of the shards that new groups use from a time on. The layout record of shard 0 has all placements,
// and none is removed: a group stays on the shard where it was created, to which one of the placements leads its id.
type placement struct {
	from   int64 // µs of shard 0's clock
	shards []int
}

// placements are in the order in which they were added.
type placements []placement

const (
	// placeAfter is how long after its addition a placement takes effect, so that every process has read it by then.
	placeAfter = 10 * time.Second
	// PlaceEvery is how often processes have to read the placements.
	PlaceEvery = 2 * time.Second
	// placeStale is the age from which a reading is repeated by a call that needs it.
	placeStale = 5 * time.Second
)

// MaxShards is the largest number of shards.
const MaxShards = 256

func parsePlacements(text string) (placements, error) {
	var all placements
	for part := range strings.SplitSeq(text, ";") {
		from, list, _ := strings.Cut(part, " ")
		at, err := strconv.ParseInt(from, 10, 64)
		p := placement{from: at}
		for word := range strings.SplitSeq(list, ",") {
			n, bad := strconv.Atoi(word)
			if err == nil && (bad != nil || n < 0 || n >= MaxShards) {
				err = fmt.Errorf("shard %q", word)
			}
			p.shards = append(p.shards, n)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the placements %q: %w", text, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// shardWords returns a list of shards as shards_place takes it.
func shardWords(shards []int) string {
	var list []string
	for _, n := range shards {
		list = append(list, strconv.Itoa(n))
	}
	return strings.Join(list, ",")
}

// count returns how many shards the installation has: those up to the largest of any placement.
func (p placements) count() int {
	most := 0
	for _, one := range p {
		most = max(most, slices.Max(one.shards))
	}
	return most + 1
}

// at returns the placement in effect at a time.
func (p placements) at(now int64) placement {
	for i := len(p) - 1; i > 0; i-- {
		if p[i].from <= now {
			return p[i]
		}
	}
	return p[0]
}

// homes returns the shards that may have the group: first the one for a new group, then those of the other placements,
// latest first.
func (p placements) homes(id string, now int64) []int {
	key := homeKey(id)
	homes := []int{p.at(now).home(key)}
	for i := len(p) - 1; i >= 0; i-- {
		if n := p[i].home(key); !slices.Contains(homes, n) {
			homes = append(homes, n)
		}
	}
	return homes
}

// home returns the shard of a key, by rendezvous hashing: a shard more or less changes only the homes of the keys on that
// shard.
func (p placement) home(key string) int {
	return slices.MaxFunc(p.shards, func(a, b int) int { return cmp.Compare(rendezvous(key, a), rendezvous(key, b)) })
}

// together ends the part of an id that determines its shard, so that groups whose ids share that part are on one shard.
const together = "::"

// RunsPrefix begins the ids of groups that schedules create. The id of the schedule, a colon and the time follow it.
const RunsPrefix = "schedule:"

// homeKey returns the text that determines a group's home: the part of its id before together, or its id. The time of a
// schedule's run is left out, because a run may wait for the one before. So are the numbers of redrives, which are on the
// shard of their source.
func homeKey(id string) string {
	if part, _, cut := strings.Cut(id, together); cut && part != "" {
		id = part
	}
	if at := strings.LastIndexByte(id, ':'); at > len(RunsPrefix) && strings.HasPrefix(id, RunsPrefix) {
		id = id[:at]
	}
	for {
		root := rootOf(id)
		if root == id {
			return id
		}
		id = root
	}
}

// rendezvous returns the weight of a shard for a key. It must never change: groups are found by it.
func rendezvous(key string, shard int) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails
	x := h.Sum64() ^ uint64(shard+1)*0x9e3779b97f4a7c15
	// The finalizer of SplitMix64, because FNV alone spreads similar keys badly.
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// placementCache has the last reading of the placements.
type placementCache struct {
	mu   sync.Mutex // held while the placements are read
	last atomic.Pointer[placementReading]
	next atomic.Int64 // when to try again after a failure, in ns since start
}

// placementReading is the placements as they were read at a time.
type placementReading struct {
	placements
	text string
	now  int64 // of shard 0's clock, µs
	at   time.Time
}

// clock returns the time of shard 0's clock, µs.
func (p *placementReading) clock() int64 { return p.now + time.Since(p.at).Microseconds() }

// open returns the shards that are open for new groups.
func (p *placementReading) open() []int { return p.placements.at(p.clock()).shards }

// readPlacements returns the placements. If their text equals known, it first adds one with the shards, and reports it.
func (s *shard) readPlacements(ctx context.Context, known string, shards []int) (p *placementReading, added bool, err error) {
	if err := s.server.check(ctx); err != nil { // the script below marks a store without data
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, max(prepareTimeout, s.o.Timeout))
	defer cancel()
	began := time.Now()
	first := make([]int, s.o.Shards)
	for i := range first {
		first[i] = i
	}
	res, err := s.scripts.Run(ctx, "shards_place", []string{layoutKey(s.o.Prefix, 0)}, s.now(), shardWords(first), known, shardWords(shards), placeAfter.Microseconds())
	if err != nil {
		return nil, false, fmt.Errorf("shard 0, which has the placements of groups: %w", err)
	}
	r := reply(res)
	all, err := parsePlacements(r.string(0))
	if err != nil {
		return nil, false, err
	}
	return &placementReading{placements: all, text: r.string(0), now: r.int(1), at: began}, r.int(2) == 1, nil
}

// ShardCount returns how many shards the installation has. Shard 0 has the number.
func (s processStore) ShardCount(ctx context.Context) (int, error) {
	p, _, err := s.readPlacements(ctx, "", nil)
	if err != nil {
		return 0, err
	}
	return p.count(), nil
}

// countShards records the shards of a new installation, before its layout is recorded, and returns an error if the
// installation has more shards than the configuration.
func (s *shard) countShards(ctx context.Context) error {
	p, _, err := s.readPlacements(ctx, "", nil)
	if err != nil {
		return err
	}
	if has := p.count(); has > s.o.Shards {
		return tooFewShards(s.o.Prefix, has, s.o.Shards)
	}
	return nil
}

// ErrShards is wrapped by the error of Prepare when the shards of the configuration are not those of the installation.
var ErrShards = errors.New("the shards do not fit the installation")

package policy

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

// Orders are uniform over the time in which the pre-queue is open, whatever the ids, and do not follow the order of arrival.
func TestDraw_IsUniform(t *testing.T) {
	const n, cells = 20_000, 100
	secret := bytes.Repeat([]byte("draw "), 8)
	for _, row := range []struct {
		name string
		id   func(i int) [16]byte
	}{
		{"ids that count up", func(i int) (id [16]byte) { binary.BigEndian.PutUint64(id[8:], uint64(i)); return id }},
		{"ids that differ at their beginning", func(i int) (id [16]byte) { binary.LittleEndian.PutUint32(id[:], uint32(i)<<12); return id }},
	} {
		d := NewDraw(secret, "sale", 1_000_000_000, 4_600_000_000)
		span, drawn := d.Span(), int64(7_777_777_777)
		var chi, up float64
		var count [cells]float64
		orders := make([]int64, n)
		for i := range n {
			o := d.Order(row.id(i), drawn)
			if o < drawn-span || o >= drawn {
				t.Fatalf("%s: order %d of [%d, %d)", row.name, o, drawn-span, drawn)
			}
			orders[i] = o
			count[(o-(drawn-span))*cells/span]++
			if i > 0 && o > orders[i-1] {
				up++
			}
		}
		for _, c := range count {
			chi += (c - n/cells) * (c - n/cells) / (n / cells)
		}
		// 99 degrees of freedom: above 148.2 once in a thousand.
		if chi > 148.2 {
			t.Errorf("%s: chi-square %.1f", row.name, chi)
		}
		// Kolmogorov-Smirnov: above 1.95/√n once in a thousand.
		sorted := slices.Sorted(slices.Values(orders))
		var far float64
		for i, o := range sorted {
			far = max(far, math.Abs(float64(o-(drawn-span))/float64(span)-float64(i)/n))
		}
		if far > 1.95/math.Sqrt(n) {
			t.Errorf("%s: Kolmogorov-Smirnov %.5f", row.name, far)
		}
		// Ranks against times of arrival: Spearman's coefficient has the deviation 1/√n.
		var corr float64
		for i, o := range orders {
			rank, _ := slices.BinarySearch(sorted, o)
			corr += (float64(i) - n/2) * (float64(rank) - n/2)
		}
		if corr /= n * n / 12 * n; math.Abs(corr) > 3.3/math.Sqrt(n) {
			t.Errorf("%s: rank correlation with arrival %.4f", row.name, corr)
		}
		// Runs up: half of all steps, with the deviation √(n/12).
		if math.Abs(up-n/2) > 3.3*math.Sqrt(n/12.) {
			t.Errorf("%s: %v steps go up", row.name, up)
		}
	}
}

func TestDraw_SeedDiffersByRoomOpeningAndSecret(t *testing.T) {
	seen := map[[32]byte]string{}
	for _, row := range []struct {
		name, secret, room string
		opens              int64
	}{{"one", "a", "sale", 5}, {"room", "a", "sal", 5}, {"opening", "a", "sale", 6}, {"secret", "b", "sale", 5}, {"boundary", "a", "sale\x00", 5}} {
		seed := NewDraw([]byte(row.secret), row.room, 0, row.opens).Seed
		if other, twice := seen[seed]; twice {
			t.Errorf("%s has the seed of %s", row.name, other)
		}
		seen[seed] = row.name
	}
}

package table

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestNew_RoundsUp(t *testing.T) {
	for _, row := range []struct{ size, want int }{{0, 8}, {1, 8}, {8, 8}, {9, 16}, {1000, 1024}} {
		if got := len(New[int](row.size).sets) * ways; got != row.want {
			t.Errorf("New(%d) has %d entries, want %d", row.size, got, row.want)
		}
	}
}

// A table never returns the value of another key, an old value or one that has ended. While a set is not full of valid entries, the table
// returns every stored value.
func TestTable_AgainstAMap(t *testing.T) {
	type value struct {
		n     int
		until int64
	}
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{8, 32}).Draw(t, "size")
		keys := rapid.SampledFrom([]uint64{8, 40}).Draw(t, "keys")
		table, model, now := New[int](size), map[uint64]value{}, int64(1)
		lossless := size == 8 && keys == 8
		check := func(key uint64, got int, until int64, ok bool) {
			want, known := model[key]
			known = known && want.until > now
			if ok && (!known || got != want.n || until != want.until) || !ok && known && lossless {
				t.Fatalf("key %d at %d: %d until %d, %v; want %+v, %v", key, now, got, until, ok, want, known)
			}
		}
		for i := range rapid.IntRange(1, 200).Draw(t, "steps") {
			key := rapid.Uint64Range(1, keys).Draw(t, "key") * 2
			life := rapid.Int64Range(0, 20).Draw(t, "life")
			switch rapid.IntRange(0, 4).Draw(t, "call") {
			case 0:
				now += rapid.Int64Range(0, 5).Draw(t, "passes")
			case 1:
				table.Put(key, now, i, now+life)
				model[key] = value{i, now + life}
			case 2:
				got, until, ok := table.Get(key, now)
				check(key, got, until, ok)
			case 3:
				got, until, ok := table.Use(key, now)
				check(key, got, until, ok)
			case 4:
				table.Update(key, now, func(n *int, until *int64) {
					check(key, *n, *until, *until > now)
					*n, *until = *n+1000, now+life
					model[key] = value{*n, *until}
				})
			}
		}
		count := 0
		table.Each(now, func(*int, int64) { count++ })
		if count > size {
			t.Fatalf("%d entries in a table of %d", count, size)
		}
	})
}

func TestTable_FullSetKeepsWhatIsUsed(t *testing.T) {
	table := New[int](ways)
	has := func(key uint64) bool { _, _, ok := table.Get(key, 0); return ok }
	table.Put(2, 0, 1, 100)
	for i := range uint64(200) {
		table.Use(2, 0)
		table.Put(1000+2*i, 0, 2, 100)
		if !has(2) {
			t.Fatalf("the used entry was replaced by key %d", i)
		}
	}
	table = New[int](ways)
	for key := range uint64(ways) {
		table.Put(2*key+2, 0, 1, 100-int64(key))
	}
	table.Put(100, 0, 1, 200)
	if has(2*ways) || !has(2) {
		t.Error("the entry that ends first was not the one replaced")
	}
	table.Put(4, 0, 1, 1)
	table.Use(4, 0)
	table.Put(102, 50, 1, 200)
	if has(4) || !has(100) {
		t.Error("an entry that has ended was not the one replaced")
	}
}

func TestTable_ConcurrentUpdatesAreNotLost(t *testing.T) {
	table := New[int](64)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 4000 {
				table.Update(uint64(i%32)<<1, 0, func(n *int, until *int64) { *n, *until = *n+1, 1 })
				table.Get(uint64(i%64)<<1, 0)
				table.Use(uint64(i%16)<<1, 0)
			}
		})
	}
	wg.Wait()
	sum := 0
	table.Each(0, func(n *int, _ int64) { sum += *n })
	if sum != 8*4000 {
		t.Errorf("%d updates are counted of %d", sum, 8*4000)
	}
}

func TestMeter_ReturnsTheWait(t *testing.T) {
	m := NewMeter(64)
	const interval, tolerance = 500, 1500 // four at once
	for i := range 4 {
		if wait := m.Take(2, 0, interval, tolerance); wait != 0 {
			t.Fatalf("event %d waits %d", i, wait)
		}
	}
	for _, row := range []struct{ now, want int64 }{{0, 500}, {100, 400}} {
		if a, b := m.Wait(2, row.now, tolerance), m.Take(2, row.now, interval, tolerance); a != row.want || b != row.want {
			t.Errorf("at %d: %d and %d, want %d", row.now, a, b, row.want)
		}
	}
	if a, b := m.Take(2, 500, interval, tolerance), m.Wait(4, 0, tolerance); a != 0 || b != 0 {
		t.Errorf("when its time has come: %d; another key: %d", a, b)
	}
}

// In any interval a meter permits at most one event more than fit into the interval and the tolerance.
func TestMeter_KeepsToItsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval, tolerance := rapid.Int64Range(1, 5000).Draw(t, "interval"), rapid.Int64Range(0, 50_000).Draw(t, "tolerance")
		m, now, taken := NewMeter(8), int64(0), []int64{}
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			now += rapid.Int64Range(0, 2000).Draw(t, "later")
			if wait := m.Take(2, now, interval, tolerance); wait == 0 {
				taken = append(taken, now)
			} else if again := m.Wait(2, now+wait, tolerance); again != 0 {
				t.Fatalf("after the advised wait of %d it has to wait %d", wait, again)
			}
		}
		for i := range taken {
			for j := i; j < len(taken); j++ {
				if most := 1 + (taken[j]-taken[i]+tolerance)/interval; int64(j-i+1) > most {
					t.Fatalf("%d events in %d, want at most %d", j-i+1, taken[j]-taken[i], most)
				}
			}
		}
	})
}

func TestTable_MakesNoAllocations(t *testing.T) {
	table, m, name := New[int64](1024), NewMeter(1024), []byte("192.0.2.1")
	id := [16]byte{1}
	n := testing.AllocsPerRun(100, func() {
		key := table.Key(name)
		table.Put(key, 0, 1, 10)
		table.Use(key, 0)
		extra := int64(len(name))
		table.Update(KeyOf(table, id), 0, func(v *int64, until *int64) { *v, *until = *v+extra, 5 })
		m.Take(m.Key(name), 0, 10, 90)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkUse(b *testing.B) {
	table := New[*int](1 << 15)
	for i := range uint64(10000) {
		table.Put(i*0x9e3779b97f4a7c15, 0, new(int), 100)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := uint64(0); pb.Next(); i++ {
			table.Use(i%10000*0x9e3779b97f4a7c15, 0)
		}
	})
}

func BenchmarkMeter(b *testing.B) {
	m := NewMeter(1 << 15)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := uint64(0); pb.Next(); i++ {
			m.Take(i%10000*0x9e3779b97f4a7c15, int64(i), 1, 1<<40)
		}
	})
}

package eta

import "testing"

// 100 visitors fill a room at once and stay for 60 s each, and so do the visitors after them. There is no estimate while the first
// crowd leaves. Afterwards the departure of the next crowd is forecast to a few seconds.
func TestCohorts_CrowdLeavesTogether(t *testing.T) {
	const begin = 1_000_000
	in := Input{Now: begin * 1e6, Since: begin * 1e6, Rate: 200, Waiting: 5000, MaxActive: 100}
	var f *Forecast
	for second := int64(0); second < 600; second++ {
		in.Now = (begin + second) * 1e6
		switch since := second % 60; {
		case since < 10 && second >= 60, since < 10 && second < 10: // ten leave and ten are admitted each second
			in.Admitted += 10
			in.Active = min(100, in.Active+10)
			in.Buckets = append(in.Buckets, Bucket{Second: begin + second, Admitted: 10, Busy: 1})
		default:
			in.Buckets = append(in.Buckets, Bucket{Second: begin + second, Busy: 1})
		}
		f = Window{}.Forecast(f, in)
		switch {
		case second > 15 && second < 69:
			if e := f.At(50); e.Known {
				t.Fatalf("after %d s there is an estimate for 50 ahead, %v s, although no session has ended yet", second, e.Seconds)
			}
		case second > 90 && second%60 == 30:
			for ahead, want := range map[int64]float64{45: 34.6, 145: 94.6, 245: 154.6} {
				if e := f.At(ahead); !e.Known || e.Seconds < want-max(4, want/10) || e.Seconds > want+max(4, want/10) {
					t.Errorf("after %d s %d ahead wait %+v, want about %v s", second, ahead, e, want)
				}
			}
		}
	}
	in.Now, in.Paused = in.Now+1e6, true
	if f = (Window{}).Forecast(f, in); f.At(0).Known {
		t.Error("a paused room has an estimate")
	}
	in.Now, in.Paused, in.MaxActive = in.Now+1e6, false, 0
	if f = (Window{}).Forecast(f, in); len(f.course) > 0 {
		t.Error("a room without a limit is forecast by its ending sessions")
	}
}

// Visitors for whom the room has places have an estimate, the others have none.
func TestForecast_FillingRoom(t *testing.T) {
	in := Input{Now: 1e12, Since: 1e12, Rate: 10, Waiting: 500, MaxActive: 100, Active: 20}
	f := Window{}.Forecast(nil, in)
	if e := f.At(79); !e.Known || !near(e.Seconds, 8, 0.01) {
		t.Errorf("79 ahead, the last free place: %+v, want 8 s", e)
	}
	if e := f.At(80); e.Known {
		t.Errorf("80 ahead, no free place: %v s, want no estimate", e.Seconds)
	}
}

// One visitor comes and one leaves in 50 s, too few to measure the hazard. After some minutes the forecast is that the queue goes
// on at the rate.
func TestForecast_SlowRoomNeverFills(t *testing.T) {
	const begin = 1_000_000
	in := Input{Now: begin * 1e6, Since: begin * 1e6, Rate: 0.02, Waiting: 50, MaxActive: 20, Active: 10}
	var f *Forecast
	for second := int64(1); second <= 900; second++ {
		in.Now = (begin + second) * 1e6
		b := Bucket{Second: begin + second, Busy: 1}
		if second%50 == 0 {
			b.Admitted = 1
			in.Admitted++
		}
		in.Buckets = append(in.Buckets, b)
		f = Window{}.Forecast(f, in)
	}
	if e := f.At(30); !e.Known || !near(e.Seconds, 31*50, 0.2) {
		t.Errorf("30 ahead: %+v, want about 1550 s", e)
	}
}

// A restarted gateway has the minutes before in its snapshot, so it still has estimates when the first few visitors leave.
func TestForecast_FullRoomAfterRestart(t *testing.T) {
	const begin = 1_000_000
	in := Input{Now: begin * 1e6, Since: begin * 1e6, Rate: 10, Waiting: 500, MaxActive: 100, Active: 100, Admitted: 5000}
	for second := int64(-300); second <= 0; second++ {
		in.Buckets = append(in.Buckets, Bucket{Second: begin + second, Admitted: 1, Busy: 1})
	}
	var f *Forecast
	for second := int64(1); second <= 60; second++ {
		in.Now = (begin + second) * 1e6
		in.Admitted++ // one leaves, and one comes
		in.Buckets = append(in.Buckets, Bucket{Second: begin + second, Admitted: 1, Busy: 1})
		f = Window{}.Forecast(f, in)
		if e := f.At(50); !e.Known || !near(e.Seconds, 51, 0.25) {
			t.Fatalf("%d s after the restart 50 ahead: %+v, want about 51 s", second, e)
		}
	}
}

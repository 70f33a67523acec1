package alarm

import (
	"testing"
	"time"
)

var errorsAlarm = Spec{Name: "errors", When: OriginErrors, Above: 0.05, For: 10 * time.Second, Do: Pause}

func TestAlarm_ActsAfterFor(t *testing.T) {
	resumes := errorsAlarm
	resumes.ResumeAfter = 30 * time.Second
	const unknown = -1
	for _, row := range []struct {
		name   string
		spec   Spec
		record Record
		values []float64 // one every 5 s
		want   Step
	}{
		{"nothing was seen", errorsAlarm, Record{}, nil, Nothing},
		{"at the limit", errorsAlarm, Record{}, []float64{0.05, 0.05, 0.05}, Nothing},
		{"above for too short", errorsAlarm, Record{}, []float64{0.06, 0.06}, Nothing},
		{"above for long enough", errorsAlarm, Record{}, []float64{0.06, 0.06, 0.06}, Act},
		{"interrupted", errorsAlarm, Record{}, []float64{0.06, 0.01, 0.06, 0.06}, Nothing},
		{"interrupted by a time without a value", errorsAlarm, Record{}, []float64{0.06, unknown, 0.06, 0.06}, Nothing},
		{"it acts once", errorsAlarm, Record{Active: true, Resumes: true}, []float64{0.06, 0.06, 0.06, 0.06}, Nothing},
		{"low for too short", errorsAlarm, Record{Active: true, Resumes: true}, []float64{0.06, 0.01, 0.01}, Nothing},
		{"low for long enough", errorsAlarm, Record{Active: true, Resumes: true}, []float64{0.06, 0.01, 0.01, 0.01}, Rearm},
		{"resume_after has not passed", resumes, Record{Active: true, Resumes: true}, []float64{0.01, 0.01, 0.01}, Nothing},
		{"resume_after has passed", resumes, Record{Active: true, Resumes: true}, []float64{0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01}, Resume},
		{"resume_after has passed, still above", resumes, Record{Active: true, Resumes: true}, []float64{0.06, 0.06, 0.06, 0.06, 0.06, 0.06, 0.06}, Nothing},
		{"an operator has resumed", resumes, Record{Active: true}, []float64{0.01, 0.01, 0.01}, Rearm},
	} {
		t.Run(row.name, func(t *testing.T) {
			var w Watch
			now, began := int64(1e9), int64(1e9)
			row.record.Fired = began
			for _, v := range row.values {
				w = w.Look(&row.spec, now, v, v != unknown)
				now += 5e6
			}
			if got := Next(&row.spec, &w, &row.record, now-5e6); got != row.want {
				t.Errorf("step %d, want %d with %+v", got, row.want, w)
			}
			if back, err := Parse(row.record.Text()); err != nil || back != row.record {
				t.Errorf("%+v was read back as %+v (%v)", row.record, back, err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"fired":5,"active":true}`)
	f.Fuzz(func(_ *testing.T, text string) { _, _ = Parse(text) })
}

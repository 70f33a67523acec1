package table

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestCounts_CountFurtherCausesTogether(t *testing.T) {
	var c Counts
	causes := Causes{}
	for i := range mostCauses + 20 {
		c.Note(causes, fmt.Sprintf("cause %03d", i), 2)
	}
	c.Note(causes, "cause 000", 1)
	if causes["cause 000"] != 3 || causes["other causes"] != 40 || causes.Sum() != 2*(mostCauses+20)+1 {
		t.Errorf("%v", causes)
	}
	var text strings.Builder
	causes.Print(&text, "%d × %s\n")
	if lines := strings.Split(text.String(), "\n"); lines[0] != "3 × cause 000" || lines[mostCauses] != "40 × other causes" {
		t.Errorf("%q", lines)
	}
}

func TestBroken_ListsMissedBars(t *testing.T) {
	var b Broken
	b.If(false, "%d of 1", 1)
	b.If(true, "%d of %d", 2, 1)
	if err := b.Err(); !slices.Equal(b, Broken{"2 of 1"}) || err == nil || err.Error() != "2 of 1" || (Broken{}).Err() != nil {
		t.Errorf("%q, %v", b, err)
	}
}

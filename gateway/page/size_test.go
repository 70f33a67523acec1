package page

import (
	"testing"
	"time"
)

func TestSize(t *testing.T) {
	p, err := New(Options{Room: "sale", Absence: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(len(style), len(script), len(pageHTML))
	for _, e := range p.languages {
		t.Log(e.words.code, len(e.constant.Texts), len(e.splice.append(nil, e.data(&samples[1]))))
	}
}

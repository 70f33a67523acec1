package main

import (
	"bytes"
	"os"
	"testing"
)

func TestTheModuleIsWhatIsGenerated(t *testing.T) {
	have, err := os.ReadFile("../pow.wasm")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, Module()) {
		t.Error("pow.wasm differs; run go generate ./gateway/guard")
	}
}

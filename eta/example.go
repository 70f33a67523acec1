package eta

import (
	"bytes"
	_ "embed"
)

//go:embed example.json
var example []byte

// ExampleModel returns a model that was trained on synthetic sales (tools/eta-train), as a demonstration. Train a room's own model
// on its history.
func ExampleModel() (*Model, error) { return ReadModel(bytes.NewReader(example)) }

package eta

import (
	"bytes"
	_ "embed"
)

//go:embed example.json
var example []byte

// ExampleModel returns a model that was trained on made-up sales (tools/eta-train). It shows what the estimator can do; a room wants one
// of its own history.
func ExampleModel() (*Model, error) { return ReadModel(bytes.NewReader(example)) }

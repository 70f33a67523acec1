// Command gen writes pow.wasm, with which a page's workers try four numbers at once. kernel.go documents its computation and its
// memory, which search.js fills.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := os.WriteFile("pow.wasm", Module(), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

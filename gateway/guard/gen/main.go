// Command gen writes pow.wasm, with which a page's workers try numbers four at once. What it computes, and what the words
// of its memory are, is said in kernel.go; search.js fills them in.
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

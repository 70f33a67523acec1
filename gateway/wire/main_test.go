package wire

import (
	"fmt"
	"os"
	"testing"

	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := wiretest.LeftOver(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left over:", err)
			code = 1
		}
	}
	os.Exit(code)
}

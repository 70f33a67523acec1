package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Programs under test, built once.
var gatewayBinary, shopBinary, bulkworkerBinary, botsBinary string

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() { // every test here starts programs and waits for them
		if err := flag.Set("test.skip", "."); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	// These tests wait most of the time, so that more of them run at once than there are processors.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	dir, err := os.MkdirTemp("", "anteroom-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	gatewayBinary, shopBinary = filepath.Join(dir, "gateway"), filepath.Join(dir, "shop")
	bulkworkerBinary, botsBinary = filepath.Join(dir, "bulkworker"), filepath.Join(dir, "bots")
	for binary, source := range map[string]string{
		gatewayBinary: "../../cmd/gateway", shopBinary: "../../examples/shop", bulkworkerBinary: "../../cmd/bulkworker", botsBinary: "../bots",
	} {
		args := append([]string{"build", "-o", binary}, buildFlags...)
		if out, err := exec.Command("go", append(args, source)...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "e2e: build %s: %v\n%s", source, err, out)
			return 1
		}
	}
	defer stopChromium()
	return m.Run()
}

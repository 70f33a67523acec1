package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// casesElsewhere are the cases of framing_cases.md that are no row of a table here, with the test of each.
var casesElsewhere = map[int][2]string{
	23: {"framing_bodies_test.go", "tryPipelines"}, 25: {"framing_bodies_test.go", "tryBodiesThatStop"}, 27: {"framing_bodies_test.go", "tryExpectations"},
	28: {"framing_bodies_test.go", "tryByteByByte"}, 38: {"framing_bodies_test.go", "tryBodiesThatAreTooLong"}, 45: {"framing_bodies_test.go", "tryWhatProxiesTell"},
	46: {"edge_test.go", "TestProxyProtocol"}, 53: {"../../gateway/proxy/failure_test.go", "TestPool_ChecksIdleConnections"}, 54: {"framing_answers_test.go", "tryCutAnswers"},
	60: {"../../gateway/proxy/response_test.go", "TestForward_EventStream"}, 66: {"../../gateway/proxy/failure_test.go", "TestForward_RetriesIdempotentRequest"}, 67: {"../../gateway/proxy/failure_test.go", "TestForward_Timeouts"},
	68: {"failing_test.go", "TestProxy_OriginFailures"}, 69: {"../../gateway/proxy/failure_test.go", "TestQueue_LimitsAndOrder"}, 70: {"failing_test.go", "TestProxy_VisitorDisconnects"},
	71: {"../../gateway/proxy/failure_test.go", "TestForward_IdleResponseBody"}, 72: {"../../gateway/proxy/resolve_test.go", "TestName_Moves"}, 73: {"../../gateway/fault_test.go", "TestPanic_EndsOnlyRequest"},
	74: {"leave_test.go", "TestSIGTERM_UnderLoadFailsNoRequest"}, 75: {"slow_test.go", "TestSlowClients"}, 76: {"../../gateway/proxy/upgrade_test.go", "TestTunnel_WebSocket"},
	79: {"../../gateway/proxy/upgrade_test.go", "TestTunnel_HalfClose"}, 80: {"framing_bodies_test.go", "tryUpgradeWithoutAPass"},
}

// TestFramingCases_AllHaveTests compares framing_cases.md with the tests.
func TestFramingCases_AllHaveTests(t *testing.T) {
	count := map[int]int{}
	inputs := 0
	note := func(name string, n int) {
		var number int
		if _, err := fmt.Sscanf(name, "F%d ", &number); err != nil {
			t.Fatalf("%s has no number", name)
		}
		count[number] += n
		inputs += n
	}
	for _, c := range append(refused, badAnswers...) {
		note(c.name, len(c.in))
	}
	for _, p := range passed {
		note(p.name, 1)
	}
	for _, r := range replies {
		note(r.name, 1)
	}
	for number, at := range casesElsewhere {
		text, err := os.ReadFile(at[0])
		if err != nil || !strings.Contains(string(text), "func "+at[1]+"(t ") {
			t.Errorf("case F%d: %s has no %s: %v", number, at[0], at[1], err)
		}
		count[number]++
	}
	list, err := os.ReadFile("framing_cases.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[int]bool{}
	for _, m := range regexp.MustCompile(`(?m)^- F(\d+): `).FindAllStringSubmatch(string(list), -1) {
		number, _ := strconv.Atoi(m[1])
		if listed[number] = true; number != len(listed) {
			t.Errorf("framing_cases.md: F%d follows F%d", number, len(listed)-1)
		}
		if count[number] == 0 {
			t.Errorf("case F%d is not tried", number)
		}
	}
	for number := range count {
		if !listed[number] {
			t.Errorf("framing_cases.md has no F%d", number)
		}
	}
	t.Logf("%d cases, %d inputs in tables", len(count), inputs)
}

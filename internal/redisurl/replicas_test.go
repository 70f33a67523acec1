package redisurl

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

func TestCheckReplicas_RequiresOneThatIsConnected(t *testing.T) {
	master := redistest.Server(t, "--port", "0")
	err := CheckReplicas(t.Context(), master.Client())
	if !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), "connect one, or use durability none or disk") {
		t.Errorf("without a replica: %v", err)
	}
	gone := redistest.Server(t)
	gone.Kill()
	if err := CheckReplicas(t.Context(), open(t, gone.URL())); err == nil || errors.Is(err, ErrUnsuitable) {
		t.Errorf("a store that is away: %v", err)
	}
	trio := redistest.SentinelTrio(t)
	client := open(t, trio.URL())
	for end := time.Now().Add(time.Minute); ; {
		err := CheckReplicas(t.Context(), client)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("with replicas: %v", err)
		}
	}
}

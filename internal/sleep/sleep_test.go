package sleep_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anteroom/anteroom/internal/sleep"
)

func TestFor_ReportsWhetherTheTimeHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if !sleep.For(t.Context(), time.Second) {
			t.Error("For returned false, and its context has not ended")
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if sleep.For(ctx, time.Minute) {
			t.Error("For returned true, and its context ended before the time passed")
		}
	})
}

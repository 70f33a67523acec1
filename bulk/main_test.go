package bulk

import (
	"testing"

	"github.com/anteroom/anteroom/internal/redistest"
)

func TestMain(m *testing.M) { redistest.MainNoLeaks(m) }

package engine

import (
	"testing"

	"github.com/hubline-iot/hubline/internal/timespan/spantest"
)

func TestDurationsAreBounded(t *testing.T) { spantest.Bounded(t, (*Options).resolve, "KeepAlive") }

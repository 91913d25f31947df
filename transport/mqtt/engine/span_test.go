package engine

import (
	"testing"

	"github.com/hubline-iot/hubline/internal/testkit"
)

func TestDurationsAreBounded(t *testing.T) { testkit.Capped(t, (*Options).resolve, "KeepAlive") }

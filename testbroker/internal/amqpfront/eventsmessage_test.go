package amqpfront

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"
)

// Readers of a busy hub get their events from one process, so their cost decides how many they get.
func TestAnEventIsCheapToEncode(t *testing.T) {
	m := hubdata.Message{DeviceID: "dev-1", MessageID: "1", Body: make([]byte, 100), Received: time.Now()}
	e := telemetry.Event{Sequence: 1 << 40, Enqueued: m.Received, Source: hubdata.EventSourceTelemetry, Message: &m,
		Origin: telemetry.Origin{Generation: "637000000000000001"}}
	buf := make([]byte, 0, 2*eventHead)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { appendEvent(buf, &e, nil) }), 1.)
}

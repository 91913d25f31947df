package hub

import (
	"context"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"
)

// Wait waits until ok returns true.
func (h *Hub) Wait(ctx context.Context, ok func(log []hubdata.Message) bool) error {
	var r telemetry.Reading
	return h.Until(ctx, func() bool { return ok(r.Update(&h.Telemetry)) })
}

// Until waits until ok returns true. It calls ok at once, and again after each change.
func (h *Hub) Until(ctx context.Context, ok func() bool) error {
	return h.Changed.Until(ctx, h.Done, ok)
}

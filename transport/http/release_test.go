package http_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// A handler that cannot handle messages yet returns an error. The hub gives up a message after ten
// deliveries, so they must not be used up in a moment.
func TestReleasedMessagesComeAgainLater(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		bubble(t, func(t *testing.T, h *scripted) {
			for range n {
				h.message("x", nil)
			}
			c := h.client(t, h.polling(10*time.Second), nil)
			c.HandleMessages(func(context.Context, *transport.Message) error { return errors.New("not ready") })
			time.Sleep(59 * time.Second)
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, m := range h.inbox {
				require.LessOrEqual(t, m.delivered, 5, m.sequence)
			}
		})
	}
}

package amqp_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// Over a link of a few hundred bytes per second messages arrive about as fast as it allows, on one
// connection, though a full batch would take longer than AckTimeout.
func TestAVerySlowLinkGetsEverythingThrough(t *testing.T) {
	for _, row := range []struct {
		rate, messages, size int
	}{
		{850, 60, 800}, {700, 60, 800}, {300, 60, 800}, {100, 30, 800}, {2000, 4, 60_000}, {700, 2, 60_000},
	} {
		t.Run(fmt.Sprintf("%d messages of %d bytes at %d bytes per second", row.messages, row.size, row.rate),
			func(t *testing.T) {
				bubble(t, func(t *testing.T, h *hub) {
					connections := 0
					c, err := device.New(h.device(t, "slow"), amqp.New(h.slow(row.rate, 64<<10)), &device.Options{
						OperationTimeout: -1,
						Trace:            &device.Trace{Connected: func(transport.Info, time.Duration) { connections++ }},
						OnStatus: func(s device.Status) {
							if s.Err != nil {
								t.Logf("%v: %v", s.Reason, s.Err)
							}
						},
					})
					require.NoError(t, err)
					defer c.Close()
					require.NoError(t, c.Open(t.Context()))
					began := time.Now()
					for i := range row.messages {
						require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: strconv.Itoa(i), Body: make([]byte, row.size)},
							nil))
					}
					flushed := make(chan error, 1)
					go func() { flushed <- c.Flush(t.Context()) }()
					ideal := time.Duration(row.messages*row.size) * time.Second / time.Duration(row.rate)
					select {
					case err := <-flushed:
						require.NoError(t, err)
					case <-time.After(10 * ideal):
						t.Fatalf("%d of %d acknowledged after %v", c.Stats().Acknowledged, row.messages, 10*ideal)
					}
					took := time.Since(began)
					t.Logf("%v of %v, %d copies, %d connections", took, ideal, len(h.Messages()), connections)
					require.Less(t, took, ideal*3/2)
					require.Len(t, h.Messages(), row.messages)
					require.Equal(t, 1, connections)
				})
			})
	}
}

// veiled is a user's connection that hides the socket below it.
type veiled struct{ net.Conn }

// When the socket's progress is unknown, the next connection begins with smaller batches than the
// one that was cut.
func TestTheWindowOfASlowConnectionIsRemembered(t *testing.T) {
	for _, shared := range []bool{false, true} {
		bubble(t, func(t *testing.T, h *hub) {
			const rate, messages, size = 80, 20, 800
			o := h.slow(rate, 64<<10)
			dial := o.Network.Dial
			o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := dial(ctx, network, addr)
				return veiled{c}, err
			}
			var tr transport.Transport = amqp.New(o)
			if shared {
				tr = amqp.NewMux(o)
			}
			c, err := device.New(h.device(t, "slow"), tr, &device.Options{OperationTimeout: -1})
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.Open(t.Context()))
			for i := range messages {
				require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: strconv.Itoa(i), Body: make([]byte, size)}, nil))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 4*messages*size/rate*time.Second)
			defer cancel()
			require.NoError(t, c.Flush(ctx), "%+v", c.Stats())
			t.Logf("%d connections, %d copies", c.Stats().Connections, len(h.Messages()))
			require.LessOrEqual(t, c.Stats().Connections, uint64(4))
		})
	}
}

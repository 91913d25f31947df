package sim_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// A link of some hundred bytes per second carries what it can, on one connection, with default
// options. That includes messages of 60 KB, each of which takes longer than any time-out. (MQTT has
// its own limit: the hub requires a whole packet within 1.5 times the keep-alive.)
func TestAVerySlowLink(t *testing.T) {
	for _, row := range []struct{ rate, messages, size int }{{700, 60, 800}, {700, 2, 60_000}} {
		withEachEngine(t, func(t *testing.T, e engine) {
			if e.protocol == hubdata.HTTP && row.size > 10_000 {
				t.Skip("a request has a time of its own")
			}
			if e.boxed && row.size > 10_000 {
				t.Skip("an envelope needs more than 1.5 times the keep-alive")
			}
			t.Run(fmt.Sprintf("%d messages of %d bytes at %d bytes per second", row.messages, row.size, row.rate),
				func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						h, creds := e.openHub(t)
						w := e.inMemory(h, false)
						dial := w.Dial
						w.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
							c, err := dial(ctx, network, addr)
							if err == nil {
								c.(*memconn.Conn).SetRate(row.rate)
							}
							return c, err
						}
						began := time.Now()
						c, err := device.New(creds, e.make(creds, w), &device.Options{OnStatus: func(s device.Status) {
							if s.Err != nil {
								t.Logf("after %v: %v", time.Since(began), s.Err)
							}
						}})
						require.NoError(t, err)
						defer c.Close()
						require.NoError(t, c.Open(t.Context()))
						for i := range row.messages {
							require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: strconv.Itoa(i), Body: make([]byte, row.size)},
								nil))
						}
						ideal := time.Duration(row.messages*row.size) * time.Second / time.Duration(row.rate)
						ctx, cancel := context.WithTimeout(t.Context(), 4*ideal)
						defer cancel()
						require.NoError(t, c.Flush(ctx), "%d of %d after %v; ideal %v", c.Stats().Acknowledged, row.messages,
							time.Since(began), ideal)
						t.Logf("%v of %v, %d copies, %d connections", time.Since(began), ideal, len(h.Messages()), c.Stats().Connections)
						require.Len(t, h.Messages(), row.messages)
						require.EqualValues(t, 1, c.Stats().Connections)
					})
				})
		})
	}
}

package http_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// losses records when and why connections are lost.
type losses struct {
	at  []time.Time
	why []error
}

func (l *losses) options() *device.Options {
	return &device.Options{OnStatus: func(s device.Status) {
		if s.Reason == device.ReasonConnectionLost {
			l.at, l.why = append(l.at, time.Now()), append(l.why, s.Err)
		}
	}}
}

// The network starts to drop packets silently under a connection that was used before. When the
// request times out, the message is sent over another connection.
func TestASilentConnectionIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		var lost losses
		c := h.client(t, h.options(), lost.options())
		all := numbered(2)
		require.NoError(t, c.Send(t.Context(), all[0]))
		require.Equal(t, 1, h.dialed(), "one connection for both requests")
		h.conns[0].Hold(true)
		began := time.Now()
		require.NoError(t, c.Send(t.Context(), all[1]))
		require.Len(t, lost.at, 1)
		require.Equal(t, 60*time.Second, lost.at[0].Sub(began))
		require.ErrorIs(t, lost.why[0], transport.Timeout)
		require.LessOrEqual(t, time.Since(began), 61*time.Second)
		require.Equal(t, 3, h.dialed(), "one of them to see whether the network is silent as a whole")
		h.requireArrived(t, all)
	})
}

// A new connection that does not come about is given up sooner: a hub may answer late, but it does
// not accept late.
func TestASilentNetworkIsFoundByTheNextConnection(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 30 * time.Second, 10 * time.Second: 10 * time.Second,
		5 * time.Minute: 150 * time.Second} {
		bubble(t, func(t *testing.T, h *scripted) {
			var lost losses
			var silent atomic.Bool
			o := h.options()
			o.Timeout = timeout
			o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if silent.Swap(false) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return h.network.DialContext(ctx, network, addr)
			}
			c := h.client(t, o, lost.options())
			all := numbered(1)
			time.Sleep(2 * time.Minute) // the connection was idle for long and is closed
			silent.Store(true)
			began := time.Now()
			require.NoError(t, c.Send(t.Context(), all[0]))
			require.Len(t, lost.at, 1)
			require.Equal(t, want, lost.at[0].Sub(began))
			require.ErrorIs(t, lost.why[0], transport.Timeout)
			h.requireArrived(t, all)
		})
	}
}

// A silent network is distinguished from a hub that answers late, because no second connection
// comes about.
func TestASilentNetworkIsFoundWhileARequestWaits(t *testing.T) {
	for name, row := range map[string]struct {
		timeout time.Duration
		size    int
		want    time.Duration
	}{
		"default":                    {0, 10, 30 * time.Second},
		"a longer Timeout":           {5 * time.Minute, 10, 150 * time.Second},
		"a shorter Timeout":          {10 * time.Second, 10, 10 * time.Second},
		"a large message has longer": {0, 80 << 10, 65 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *scripted) {
				var lost losses
				o := h.options()
				o.Timeout = row.timeout
				c := h.client(t, o, lost.options())
				all := numbered(2)
				all[1].Body = make([]byte, row.size)
				require.NoError(t, c.Send(t.Context(), all[0]))
				h.conns[0].Hold(true)
				h.network.Hang(true)
				began := time.Now()
				time.AfterFunc(170*time.Second, func() { h.network.Hang(false) })
				require.NoError(t, c.Send(t.Context(), all[1]))
				require.NotEmpty(t, lost.at)
				require.Equal(t, row.want, lost.at[0].Sub(began))
				require.ErrorIs(t, lost.why[0], transport.Timeout)
				h.requireArrived(t, all)
			})
		})
	}
}

// trickle makes the hub answer polls with a message of size bytes, of which so many come, one each
// ten seconds.
func (h *scripted) trickle(size, come int) {
	h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		if r.Method != http.MethodGet {
			return false
		}
		c, _, err := w.(http.Hijacker).Hijack()
		require.NoError(h.t, err)
		_, err = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nETag: \"1\"\r\niothub-sequencenumber: 1\r\n"+
			"Content-Length: %d\r\n\r\n", size)
		require.NoError(h.t, err)
		for n := range come {
			time.AfterFunc(time.Duration(n+1)*10*time.Second, func() { _, _ = io.WriteString(c, "x") })
		}
		return true
	}
}

// A client does not wait for a subscription as long as a large message may take.
func TestASubscriptionIsRepliedToAtTheHeadOfAMessage(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.trickle(4, 4)
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		require.Empty(t, r.bodies())
		time.Sleep(40 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"xxxx"}, r.bodies())
	})
}

// The bytes of an answer are progress, but not for ever.
func TestAnAnswerThatStops(t *testing.T) {
	for name, row := range map[string]struct {
		come   int
		silent bool
		want   time.Duration
	}{
		"the hub stops":              {5, false, 110 * time.Second},
		"the network falls silent":   {5, true, 80 * time.Second},
		"the answer comes to no end": {1000, false, 11 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *scripted) {
				h.trickle(10_000, row.come)
				r := h.start(t, h.options())
				began := time.Now()
				require.NoError(t, r.subscribe())
				h.network.Hang(row.silent)
				<-r.ended
				require.Equal(t, row.want, time.Since(began))
				r.requireLoss(transport.Timeout)
			})
		})
	}
}

package http_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	hubhttp "github.com/hubline-iot/hubline/transport/http"
)

// client opens a device client on a scripted hub.
func (h *scripted) client(t testing.TB, o *hubhttp.Options, d *device.Options) *device.Client {
	t.Helper()
	c, err := device.New(h.creds(goodKey), hubhttp.New(o), d)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.Open(t.Context()))
	return c
}

// losing makes the hub break the connection instead of answering the next n matching requests,
// which it executes or not.
func (h *scripted) losing(n int, executes bool, which func(r *http.Request) bool) {
	h.answer = func(_ http.ResponseWriter, r *http.Request, body []byte) bool {
		if n == 0 || !which(r) {
			return false
		}
		n--
		if executes {
			h.route(discard{http.Header{}}, r, body)
		}
		panic(http.ErrAbortHandler)
	}
}

// discard is a ResponseWriter that drops the answer.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// A lost answer to telemetry: the hub has the message, the client does not know it, so it sends the
// message again with the same id, before all later ones.
// The first time that is at once, over another connection; the second time the session ends.
func TestTelemetryIsRepeatedAfterALostAnswer(t *testing.T) {
	for _, lost := range []int{1, 2} {
		bubble(t, func(t *testing.T, h *scripted) {
			h.losing(lost, true, func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/events") })
			c := h.client(t, h.options(), nil)
			for i := range 3 {
				require.NoError(t, c.Enqueue(t.Context(), numbered(3)[i], nil))
			}
			require.NoError(t, c.Flush(t.Context()))
			var ids []string
			for _, m := range h.Received() {
				ids = append(ids, m.ID)
			}
			require.Equal(t, []string{"m-0", "m-1", "m-2"}, ids[len(ids)-3:])
			require.Equal(t, uint64(lost), c.Stats().Connections)
		})
	}
}

// A hub, or a proxy before it, may close an idle connection just as the next request goes. That is
// no loss: the request goes again at once, and the message arrives once.
func TestAnIdleConnectionThatClosesIsReplacedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		served := map[string]bool{}
		h.answer = func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
			if served[r.RemoteAddr] {
				panic(http.ErrAbortHandler)
			}
			served[r.RemoteAddr] = true
			return false
		}
		c := h.client(t, h.options(), nil)
		began := time.Now()
		for _, m := range numbered(40) {
			require.NoError(t, c.Send(t.Context(), m))
		}
		require.Zero(t, time.Since(began))
		require.Len(t, h.Received(), 40)
		require.Equal(t, uint64(1), c.Stats().Connections)
	})
}

// A settlement whose answer was lost goes again over another connection. It takes effect once,
// because it names its lock. After a second loss it ends with its session, and the hub redelivers a
// message that it does not consider settled.
func TestASettlementWithALostAnswer(t *testing.T) {
	for _, row := range []struct {
		lost        int
		executed    bool // the hub has settled the message
		handled     int32
		connections uint64
	}{{1, false, 1, 1}, {1, true, 1, 1}, {2, true, 1, 2}, {2, false, 2, 2}} {
		bubble(t, func(t *testing.T, h *scripted) {
			h.message("x", nil)
			h.losing(row.lost, row.executed, func(r *http.Request) bool { return r.Method == http.MethodDelete })
			var handled atomic.Int32
			c := h.client(t, h.polling(time.Minute), nil)
			c.HandleMessages(func(context.Context, *transport.Message) error {
				handled.Add(1)
				return nil
			})
			time.Sleep(10 * time.Minute)
			require.Equal(t, []string{"complete 1"}, h.verdicts())
			require.Equal(t, row.handled, handled.Load())
			require.Equal(t, row.connections, c.Stats().Connections)
		})
	}
}

// A poll whose answer was lost is repeated. The message in the lost answer stays locked for a
// minute and comes after that.
func TestAPollWithALostAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.message("x", nil)
		h.losing(1, true, func(r *http.Request) bool { return r.Method == http.MethodGet })
		var handled atomic.Int32
		c := h.client(t, h.polling(10*time.Second), nil)
		c.HandleMessages(func(context.Context, *transport.Message) error {
			handled.Add(1)
			return nil
		})
		time.Sleep(50 * time.Second)
		require.Zero(t, handled.Load())
		time.Sleep(30 * time.Second)
		require.Equal(t, int32(1), handled.Load())
		require.Equal(t, []string{"complete 1"}, h.verdicts())
	})
}

// slowConn is a link with a rate in bytes per second, each way.
type slowConn struct {
	net.Conn
	rate   int
	closed chan struct{}
	once   sync.Once
}

func (c *slowConn) Write(b []byte) (int, error) {
	for n := 0; n < len(b); {
		piece := b[n:min(n+c.rate, len(b))]
		if err := c.carry(len(piece)); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(piece)
		if n += m; err != nil {
			return n, err
		}
	}
	return len(b), nil
}

func (c *slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), c.rate)])
	if err == nil {
		err = c.carry(n)
	}
	return n, err
}

// carry waits for as long as the link takes for n bytes.
func (c *slowConn) carry(n int) error {
	select {
	case <-time.After(time.Duration(n) * time.Second / time.Duration(c.rate)):
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

func (c *slowConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// slow returns options that limit the link to the hub to this rate in bytes per second.
func (h *scripted) slow(rate int) *hubhttp.Options {
	o := h.options()
	o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := h.network.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &slowConn{Conn: c, rate: rate, closed: make(chan struct{})}, nil
	}
	return o
}

// A backlog gets through a slow link: the session limits batches to the size that the link carries
// before the client gives up the connection. As the link gets faster, they grow.
func TestABacklogOverASlowLink(t *testing.T) {
	for _, row := range []struct {
		rate int // bytes per second
		most time.Duration
	}{{1500, 4 * time.Minute}, {4 << 10, 90 * time.Second}, {64 << 10, 8 * time.Second}} {
		bubble(t, func(t *testing.T, h *scripted) {
			c := h.client(t, h.slow(row.rate), nil)
			all := numbered(128)
			for _, m := range all {
				m.Body = append(m.Body, make([]byte, 1500)...)
				require.NoError(t, c.Enqueue(t.Context(), m, nil))
			}
			ctx, cancel := context.WithTimeout(t.Context(), row.most)
			defer cancel()
			require.NoError(t, c.Flush(ctx))
			require.Equal(t, uint64(1), c.Stats().Connections)
			h.requireArrived(t, all)
			if row.rate >= 64<<10 {
				require.Less(t, len(h.seen()), 6)
			}
		})
	}
}

// Where a round trip costs less than base64, a message goes in a request of its own; where it costs
// more, messages share requests.
func TestLargeMessagesGoTheFasterWay(t *testing.T) {
	const count, size, rate = 40, 20_000, 100_000
	for _, row := range []struct {
		late  time.Duration
		most  time.Duration // the bytes take 8 s
		alone bool
	}{{0, 9 * time.Second, true}, {2 * time.Second, 36 * time.Second, false}} {
		t.Run(row.late.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *scripted) {
				h.late = row.late
				c := h.client(t, h.slow(rate), nil)
				all := numbered(count)
				for _, m := range all {
					m.Body = append(m.Body, make([]byte, size)...)
					require.NoError(t, c.Enqueue(t.Context(), m, nil))
				}
				began := time.Now()
				require.NoError(t, c.Flush(t.Context()))
				require.Less(t, time.Since(began), row.most)
				h.requireArrived(t, all)
				plain := 0
				for _, q := range h.seen() {
					if q.header.Get("Content-Type") == "application/octet-stream" {
						plain++
					}
				}
				require.Equal(t, row.alone, plain > count-3, "%d of %d alone", plain, count)
			})
		})
	}
}

// A hub that answers late, such as one that throttles a device, gets each message once: no
// connection is closed before its request times out.
func TestAHubThatAnswersLate(t *testing.T) {
	for _, row := range []struct {
		takes, timeout time.Duration
	}{{31 * time.Second, 0}, {40 * time.Second, 0}, {59 * time.Second, 0}, {100 * time.Second, 110 * time.Second}} {
		t.Run(fmt.Sprint(row.takes), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *scripted) {
				o := h.options()
				o.Timeout = row.timeout
				h.late = row.takes
				c := h.client(t, o, nil)
				all := numbered(200)
				for _, m := range all {
					require.NoError(t, c.Enqueue(t.Context(), m, nil))
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				require.NoError(t, c.Flush(ctx))
				require.Equal(t, uint64(1), c.Stats().Connections)
				h.requireArrived(t, all)
			})
		})
	}
	bubble(t, func(t *testing.T, h *scripted) { // no answer at all: the request's timeout applies
		var ended []time.Time
		var why error
		h.HoldAnswers(true)
		c := h.client(t, h.options(), &device.Options{OnStatus: func(s device.Status) {
			if s.Reason == device.ReasonConnectionLost {
				ended, why = append(ended, time.Now()), s.Err
			}
		}})
		began := time.Now()
		require.NoError(t, c.Enqueue(t.Context(), numbered(1)[0], nil))
		time.Sleep(65 * time.Second)
		synctest.Wait()
		require.Len(t, ended, 1)
		require.Equal(t, 60*time.Second, ended[0].Sub(began))
		require.ErrorIs(t, why, transport.Timeout)
	})
}

// The first batch takes longer over a very slow link than the client waits. The next connection
// begins with a smaller batch.
func TestABacklogOverAVerySlowLink(t *testing.T) {
	for _, row := range []struct {
		rate int // bytes per second
		ack  time.Duration
	}{{200, 0}, {400, 0}, {1100, 0}, {600, 30 * time.Second}, {1000, 10 * time.Second}} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *scripted) {
				c := h.client(t, h.slow(row.rate), &device.Options{AckTimeout: row.ack, OutageLimit: time.Hour})
				all := numbered(128)
				size := 0
				for _, m := range all {
					m.Body = append(m.Body, make([]byte, 300)...)
					size += len(m.Body)*4/3 + 80 // in base64, in JSON
					require.NoError(t, c.Enqueue(t.Context(), m, nil))
				}
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				require.NoError(t, c.Flush(ctx))
				connections := c.Stats().Connections
				require.LessOrEqual(t, connections, uint64(5))
				best := time.Duration(size/row.rate) * time.Second
				require.Less(t, time.Since(began), 2*best+time.Duration(connections)*time.Minute)
				h.requireArrived(t, all)
			})
		})
	}
}

// The largest cloud-to-device message takes longer than a request may wait for its answer, and
// longer than the hub's lock lasts.
func TestALargeMessageOverAVerySlowLink(t *testing.T) {
	for _, rate := range []int{200, 500, 1000} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *scripted) {
				h.message(strings.Repeat("x", 64<<10), nil)
				c := h.client(t, h.slow(rate), nil)
				began := time.Now()
				handled := make(chan time.Duration, 10)
				c.HandleMessages(func(_ context.Context, m *transport.Message) error {
					require.Len(t, m.Body, 64<<10)
					handled <- time.Since(began)
					return nil
				})
				time.Sleep(15 * time.Minute)
				require.Len(t, handled, 1)
				require.Less(t, <-handled, time.Duration(66<<10/rate)*time.Second)
				require.Equal(t, uint64(1), c.Stats().Connections)
			})
		})
	}
}

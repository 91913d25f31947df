package amqpfront_test

import (
	"context"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// patient returns a context for real connections on a machine under load.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// dialEvents connects a back end over TCP.
func dialEvents(t testing.TB, h *testbroker.Hub, at net.Addr, policy hubdata.Policy) *hubtest.Peer {
	t.Helper()
	stream, err := net.Dial("tcp", at.String())
	require.NoError(t, err)
	p := hubtest.NewPeer(t, h, stream, nil)
	require.Equal(t, 200, p.CBS().Put(hubtest.PolicyToken(policy, h.HostName())))
	return p
}

// fill stores n messages of dev-1 with bodies of a size, in batches.
func fillEvents(t testing.TB, h *testbroker.Hub, d hubdata.Device, n, size int) {
	t.Helper()
	s := hubtest.LoginAMQP(t, h, d).Telemetry(d)
	payload := make([]byte, size)
	for range n {
		_, err := s.SendWithReceipt(patient(t), amqp.NewMessage(payload), nil)
		require.NoError(t, err)
	}
	require.NoError(t, h.WaitMessages(patient(t), n))
}

// A reader that gives much credit and does not read makes the hub queue little, and is not cut.
func TestSlowReaderCostsLittleMemory(t *testing.T) {
	h, d, policy := newService(t, &testbroker.Options{Events: testbroker.EventOptions{Partitions: 1}})
	at := hubtest.Listen(t, h, testbroker.PortAMQP)
	const n, size = 400, 100_000
	fillEvents(t, h, d, n, size)
	stream, err := net.Dial("tcp", at.String())
	require.NoError(t, err)
	slow := &pausedConn{Conn: stream, released: make(chan struct{})}
	t.Cleanup(slow.release)
	p := hubtest.NewPeer(t, h, slow, nil)
	require.Equal(t, 200, p.CBS().Put(hubtest.PolicyToken(policy, h.HostName())))
	r, err := p.Session().NewReceiver(patient(t), address("$Default", "0"), &amqp.ReceiverOptions{Credit: -1})
	require.NoError(t, err)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	slow.pause()
	require.NoError(t, r.IssueCredit(n))
	fast := dialEvents(t, h, at, policy) // reads all meanwhile
	other, err := fast.Session().NewReceiver(patient(t), address("$Default", "0"), nil)
	require.NoError(t, err)
	for range n {
		m, err := other.Receive(patient(t), nil)
		require.NoError(t, err)
		require.Len(t, m.GetData(), size)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(20<<20), "of %d bytes of events", n*size)
	slow.release()
	for i := range n {
		m, err := r.Receive(patient(t), nil)
		require.NoError(t, err)
		require.Equal(t, int64(i), m.Annotations["x-opt-sequence-number"])
	}
}

// A pausedConn stops reading while it is paused.
type pausedConn struct {
	net.Conn
	mu       sync.Mutex
	paused   bool
	released chan struct{}
	once     sync.Once
}

func (c *pausedConn) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = true
}

func (c *pausedConn) release() { c.once.Do(func() { close(c.released) }) }

func (c *pausedConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	paused := c.paused
	c.mu.Unlock()
	if paused {
		<-c.released
	}
	return c.Conn.Read(p)
}

// Readers of several groups get every event, and a closed hub ends them all.
func TestManyReadersAndAClosedHub(t *testing.T) {
	t.Parallel()
	groups := []string{"$Default", "a", "b", "c"}
	h, d, policy := newService(t, &testbroker.Options{Events: testbroker.EventOptions{Partitions: 1,
		ConsumerGroups: groups}})
	at := hubtest.Listen(t, h, testbroker.PortAMQP)
	const n = 500
	var all, ended sync.WaitGroup
	for _, group := range groups {
		for range 5 {
			r, err := dialEvents(t, h, at, policy).Session().NewReceiver(patient(t), address(group, "0"), nil)
			require.NoError(t, err)
			all.Add(1)
			ended.Go(func() {
				for i := range n {
					m, err := r.Receive(patient(t), nil)
					if assert.NoError(t, err) {
						assert.Equal(t, int64(i), m.Annotations["x-opt-sequence-number"])
					}
				}
				all.Done()
				_, err := r.Receive(patient(t), nil)
				assert.Error(t, err)
				assert.NotErrorIs(t, err, context.DeadlineExceeded)
			})
		}
	}
	fillEvents(t, h, d, n, 10)
	all.Wait()
	require.NoError(t, h.Close())
	ended.Wait()
}

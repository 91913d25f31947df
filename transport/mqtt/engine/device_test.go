package engine_test

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// A PUBACK that does not arrive within AckTimeout: the message is sent again on a new connection,
// with the same packet id and DUP.
func TestAMissingPubackIsNoticed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := hubfixture.New(t)
		var lost time.Time
		c, err := device.New(h.CredsWith(t, ""),
			engine.New(func(ctx context.Context, _ *transport.Credentials) (engine.Conn, error) {
				return h.Dial(testbroker.PortMQTT)(ctx, "", "")
			}, nil), &device.Options{
				AckTimeout: 7 * time.Second,
				OnStatus: func(s device.Status) {
					if s.Reason == device.ReasonConnectionLost {
						lost = time.Now()
					}
				},
			})
		require.NoError(t, err)
		require.NoError(t, c.Open(t.Context()))
		h.Inject(fault.Fault{Kind: fault.SwallowPuback})
		begun := time.Now()
		require.NoError(t, c.Send(t.Context(), &transport.Message{ID: "1"}))
		synctest.Wait()
		require.Equal(t, 7*time.Second, lost.Sub(begun))
		log := h.Messages()
		require.Len(t, log, 2)
		require.False(t, log[0].Dup)
		require.True(t, log[1].Dup)
		require.Equal(t, log[0].PacketID, log[1].PacketID)
		require.NoError(t, c.Close())
	})
}

// The device loop is inside a write that never ends; Close unblocks it.
func TestCloseFreesAStuckWrite(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		near, far := memconn.Pair("near", "far")
		near.SetBuffer(8 << 10)
		go func() { // a hub that sends a CONNACK and then does nothing
			_, _ = far.Read(make([]byte, 4096))
			_, _ = far.Write([]byte{0x20, 2, 0, 0})
		}()
		creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1"}
		dial := func(context.Context, *transport.Credentials) (engine.Conn, error) { return near, nil }
		c, err := device.New(creds, engine.New(dial, nil), nil)
		require.NoError(t, err)
		require.NoError(t, c.Open(t.Context()))
		var r device.Receipt
		require.NoError(t, c.Enqueue(t.Context(), &transport.Message{Body: make([]byte, 100_000)}, &r))
		time.Sleep(10 * time.Second)
		begun := time.Now()
		require.NoError(t, c.Close())
		require.LessOrEqual(t, time.Since(begun), time.Second)
		require.ErrorIs(t, r.Wait(t.Context()), transport.Closed)
	})
}

// slowSerial reads one byte at a time, as a UART does.
type slowSerial struct{ net.Conn }

func (s slowSerial) Read(p []byte) (int, error) { return s.Conn.Read(p[:1]) }

// A board has fixed buffers and a serial line that is cut repeatedly under load in both directions.
// Nothing is lost and nothing grows.
func TestABoardUnderCuts(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := hubfixture.New(t)
		dial := func(ctx context.Context, _ *transport.Credentials) (engine.Conn, error) {
			c, err := h.Dial(testbroker.PortMQTT)(ctx, "", "")
			if err != nil {
				return nil, err
			}
			return slowSerial{c}, nil
		}
		var mu sync.Mutex
		handled := map[string]bool{}
		c, err := device.New(h.CredsWith(t, ""), engine.New(dial, &engine.Options{ReadBuffer: 512, WriteBuffer: 1024}),
			&device.Options{
				Window: 16, MaxMessages: 16, AckTimeout: 5 * time.Second, StableTime: time.Millisecond,
			})
		require.NoError(t, err)
		c.HandleMessages(func(_ context.Context, m *transport.Message) error {
			mu.Lock()
			defer mu.Unlock()
			handled[m.ID] = true
			return nil
		})
		require.NoError(t, c.Open(t.Context()))
		const n = 2000
		for i := range n {
			if i%100 == 50 {
				h.Inject(fault.Fault{Kind: []fault.Kind{fault.DropDuringPublish, fault.DropAfterPublish,
					fault.SwallowPuback}[i/100%3]})
				require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: strconv.Itoa(i), Body: make([]byte, 200)}))
			}
			require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: strconv.Itoa(i), Body: make([]byte, i%3000)}, nil))
		}
		require.NoError(t, c.Flush(t.Context()))
		require.NoError(t, h.WaitC2D(t.Context(), "dev-1", hubdata.Completed, n/100))
		seen := map[string]int{}
		for _, m := range h.Messages() {
			id, err := strconv.Atoi(m.MessageID)
			require.NoError(t, err)
			require.Len(t, m.Body, id%3000)
			if seen[m.MessageID]++; seen[m.MessageID] > 1 {
				require.True(t, m.Dup)
			}
		}
		require.Len(t, seen, n)
		require.Len(t, handled, n/100)
		require.Greater(t, c.Stats().Connections, uint64(10))
		require.NoError(t, c.Close())
	})
}

// The hub publishes the will when the device disappears, and not after DISCONNECT.
func TestTheWillIsPublishedAfterALoss(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := hubfixture.New(t)
		will := &transport.Message{ID: "last words", Body: []byte("gone")}
		c, err := device.New(h.CredsWith(t, ""), engine.New(dialHub(h), &engine.Options{Will: will}), nil)
		require.NoError(t, err)
		require.NoError(t, c.Open(t.Context()))
		h.Drop("")
		require.NoError(t, h.WaitMessages(t.Context(), 1))
		m := h.Messages()[0]
		require.Equal(t, "last words", m.MessageID)
		require.Equal(t, "gone", string(m.Body))
		kind, _ := m.Property("iothub-MessageType")
		require.Equal(t, "Will", kind)
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Send(t.Context(), &transport.Message{}))
		require.NoError(t, c.Close())
		synctest.Wait()
		require.Equal(t, 2, h.Len())
	})
}

// dialHub connects to the hub fixture without TLS.
func dialHub(h *hubfixture.Broker) engine.Dial {
	return func(ctx context.Context, _ *transport.Credentials) (engine.Conn, error) {
		return h.Dial(testbroker.PortMQTT)(ctx, "", "")
	}
}

// A hub that kept the session delivers as soon as the device is back.
func TestAHandlerRegisteredAfterOpenGetsWhatCameBefore(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := hubfixture.New(t)
		got := make(chan string, 10)
		handle := func(_ context.Context, m *transport.Message) error {
			got <- string(m.Body)
			return nil
		}
		first, err := device.New(h.CredsWith(t, ""), engine.New(dialHub(h), nil), nil)
		require.NoError(t, err)
		first.HandleMessages(handle)
		require.NoError(t, first.Open(t.Context()))
		require.NoError(t, first.Close())
		for i := range 3 {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte{'1' + byte(i)}}))
		}
		c, err := device.New(h.CredsWith(t, ""), engine.New(dialHub(h), nil), nil)
		require.NoError(t, err)
		require.NoError(t, c.Open(t.Context()))
		synctest.Wait()
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("4")}))
		synctest.Wait()
		c.HandleMessages(handle)
		for _, want := range []string{"1", "2", "3", "4"} {
			require.Equal(t, want, <-got)
		}
		synctest.Wait()
		require.EqualValues(t, 4, c.Stats().MessagesAccepted)
		require.EqualValues(t, 1, c.Stats().Connections)
		require.NoError(t, c.Close())
	})
}

// The handler is with a message of a connection that is gone, and the only slot is not free.
func TestASlotOfALostConnectionDelaysMessagesOnlyUntilItIsFree(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := hubfixture.New(t)
		var handled []time.Time
		c, err := device.New(h.CredsWith(t, ""), engine.New(dialHub(h), nil), &device.Options{Inbox: 1})
		require.NoError(t, err)
		c.HandleMessages(func(context.Context, *transport.Message) error {
			time.Sleep(10 * time.Second)
			handled = append(handled, time.Now())
			return nil
		})
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("x")}))
		synctest.Wait()
		h.Drop("")
		time.Sleep(25 * time.Second)
		require.NoError(t, c.Close())
		require.Len(t, handled, 2, "it came again")
		require.Equal(t, 10*time.Second, handled[1].Sub(handled[0]))
	})
}

package hub_test

import (
	"fmt"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestRequestedFaults(t *testing.T) {
	for _, c := range []struct {
		kind    string // the type as sent
		name    string // the type's name in the log
		end     error  // nil = the connection stays open
		refusal int    // CONNACK code for the duration; -1 = cut; 0 = none
	}{
		{"KillTcp", "KillTcp", syscall.ECONNRESET, -1},
		{"killTCP", "KillTcp", syscall.ECONNRESET, -1},
		{"ShutDownMqtt", "ShutDownMqtt", io.EOF, 0},
		{"InvokeThrottling", "InvokeThrottling", io.EOF, 3},
		{"InvokeMaxMessageQuota", "InvokeMaxMessageQuota", io.EOF, 3},
		{"invokeautherror", "InvokeAuthError", io.EOF, 5},
		{"KillAmqpc2dLink", "KillAmqpC2DLink", nil, 0},
		{"ShutDownAmqp", "ShutDownAmqp", nil, 0},
	} {
		hubtest.RunBubble(t, c.kind, func(t *testing.T) {
			var rec hubtest.Recorder
			h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: rec.Event})
			w := hubtest.Login(t, h, d)
			start := time.Now()
			w.Publish(1, hubtest.FaultTopic(c.kind, "boom", "2", "5"), "x")
			require.Equal(t, uint16(1), w.Acked())
			want := fault.Message{DeviceID: "dev-1", Type: c.name, Reason: "boom", Delay: 2 * time.Second,
				Duration: 5 * time.Second, Received: start}
			require.Equal(t, []fault.Message{want}, h.FaultMessages())
			if c.end == nil {
				time.Sleep(3 * time.Second)
				w.Ping()
				require.False(t, h.FaultMessages()[0].Happened)
				require.Zero(t, h.Len())
				return
			}
			require.ErrorIs(t, w.End(), c.end)
			require.Equal(t, 2*time.Second, time.Since(start))
			w.Conn.Close()
			synctest.Wait()
			require.Equal(t, []string{
				"#1 dev-1 connected", "#1 dev-1 fault: asked for by the device: " + c.name + ": boom",
				"#1 dev-1 disconnected: asked for by the device: " + c.name + ": boom",
			}, rec.Text())
			time.Sleep(5*time.Second - time.Millisecond)
			if c.refusal != 0 {
				want.Refused = 1
			}
			w = hubtest.Dial(t, h)
			switch {
			case c.refusal < 0:
				w.Send(hubtest.ConnectOf(d).Bytes())
				require.ErrorIs(t, w.End(), syscall.ECONNRESET)
			default:
				require.Equal(t, []byte{0, byte(c.refusal)}, w.Connect(hubtest.ConnectOf(d)))
			}
			w.Conn.Close()
			time.Sleep(time.Millisecond)
			want.Happened = true
			require.Equal(t, []fault.Message{want}, h.FaultMessages())
			hubtest.Login(t, h, d).Ping()
			require.Zero(t, h.Len())
		})
	}
}

func TestRequestedFaultsThatHappenOnce(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		mod := hubtest.AddModule(t, h, "dev-1", "m")
		w, other := hubtest.Login(t, h, d), hubtest.Login(t, h, mod)
		w.Publish(1, hubtest.Events+"AzIoTHub_FaultOperationType=KillTcp", "x")
		synctest.Wait()
		require.ErrorIs(t, w.End(), syscall.ECONNRESET)
		other.Ping()
		w = hubtest.Login(t, h, d)
		w.Publish(1,
			hubtest.Events+"AzIoTHub_FaultOperationType=InvokeThrottling&AzIoTHub_FaultOperationDelayInSecs=soon", "x")
		require.Equal(t, uint16(1), w.Acked())
		require.Equal(t, io.EOF, w.End())
		hubtest.Login(t, h, d).Ping()
	})
}

func TestFaultThatMeetsNoConnection(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		w.Publish(1, hubtest.FaultTopic("ShutDownMqtt", "", "10", "0"), "x")
		w.Acked()
		w.Publish(1, hubtest.FaultTopic("KillTcp", "", "20", "10"), "x")
		w.Acked()
		w.Conn.Close()
		time.Sleep(15 * time.Second)
		require.Equal(t, []bool{false, false}, []bool{h.FaultMessages()[0].Happened, h.FaultMessages()[1].Happened})
		w = hubtest.Login(t, h, d)
		require.ErrorIs(t, w.End(), syscall.ECONNRESET, "the connection of that time")
		require.True(t, h.FaultMessages()[1].Happened)
	})
}

// A test does not get the faults that the test before has requested.
func TestResetForgetsDelayedFaultMessages(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		w.Publish(1, hubtest.FaultTopic("KillTcp", "boom", "5", "60"), "x")
		w.Acked()
		h.Reset()
		w = hubtest.Login(t, h, d)
		time.Sleep(6 * time.Second)
		w.Ping()
	})
}

func TestSettingsOfFaultMessages(t *testing.T) {
	hubtest.RunBubble(t, "not acknowledged", func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{FaultMessages: fault.ObeyMessagesUnacked})
		w := hubtest.Login(t, h, d)
		w.Publish(1, hubtest.FaultTopic("ShutDownMqtt", "", "1", ""), "x")
		w.Publish(2, hubtest.FaultTopic("KillAmqpSession", "", "1", ""), "x")
		require.Equal(t, uint16(2), w.Acked())
		require.Equal(t, io.EOF, w.End())
	})
	hubtest.RunBubble(t, "stored", func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{FaultMessages: fault.StoreMessages})
		w := hubtest.Login(t, h, d)
		w.Publish(1, hubtest.FaultTopic("KillTcp", "", "0", ""), "x")
		w.Acked()
		require.Equal(t, 1, h.Len())
		require.Empty(t, h.FaultMessages())
	})
	hubtest.RunInBubble(t, "type not known", nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		w.Publish(1, hubtest.FaultTopic("KillAll", "", "0", ""), "x")
		w.Acked()
		require.Equal(t, 1, h.Len())
	})
	require.Equal(t, "StoreMessages MessageMode(9)", fmt.Sprint(fault.StoreMessages, " ",
		fault.MessageMode(9)))
}

func TestCloseDoesNotWaitForRequestedFaults(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		w.Publish(1, hubtest.FaultTopic("KillTcp", "", "3600", ""), "x")
		w.Acked()
		start := time.Now()
		require.NoError(t, h.Close())
		require.Zero(t, time.Since(start))
	})
}

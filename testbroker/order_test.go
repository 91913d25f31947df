package testbroker_test

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
)

// orderTopic returns the topic of a message that requests a fault.
func orderTopic(kind, reason, delay, duration string) string {
	return fmt.Sprintf(
		"%sAzIoTHub_FaultOperationType=%s&AzIoTHub_FaultOperationCloseReason=%s"+
			"&AzIoTHub_FaultOperationDelayInSecs=%s&AzIoTHub_FaultOperationDurationInSecs=%s",
		events, kind, reason, delay, duration)
}

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
		t.Run(c.kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var rec recorder
				h, d := newHub(t, &testbroker.Options{OnEvent: rec.event})
				w := login(t, h, d)
				start := time.Now()
				w.publish(1, orderTopic(c.kind, "boom", "2", "5"), "x")
				require.Equal(t, uint16(1), w.acked())
				want := fault.Message{DeviceID: "dev-1", Type: c.name, Reason: "boom", Delay: 2 * time.Second,
					Duration: 5 * time.Second, Received: start}
				require.Equal(t, []fault.Message{want}, h.FaultMessages())
				if c.end == nil {
					time.Sleep(3 * time.Second)
					w.ping()
					require.False(t, h.FaultMessages()[0].Happened)
					require.Zero(t, h.Len())
					return
				}
				require.ErrorIs(t, w.end(), c.end)
				require.Equal(t, 2*time.Second, time.Since(start))
				w.conn.Close()
				synctest.Wait()
				require.Equal(t, []string{
					"#1 dev-1 connected", "#1 dev-1 fault: asked for by the device: " + c.name + ": boom",
					"#1 dev-1 disconnected: asked for by the device: " + c.name + ": boom",
				}, rec.text())
				time.Sleep(5*time.Second - time.Millisecond)
				if c.refusal != 0 {
					want.Refused = 1
				}
				w = dial(t, h)
				switch {
				case c.refusal < 0:
					w.send(connectOf(d).bytes())
					require.ErrorIs(t, w.end(), syscall.ECONNRESET)
				default:
					require.Equal(t, []byte{0, byte(c.refusal)}, w.connect(connectOf(d)))
				}
				w.conn.Close()
				time.Sleep(time.Millisecond)
				want.Happened = true
				require.Equal(t, []fault.Message{want}, h.FaultMessages())
				login(t, h, d).ping()
				require.Zero(t, h.Len())
			})
		})
	}
}

func TestRequestedFaultsThatHappenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		mod, err := h.AddModule("dev-1", "m")
		require.NoError(t, err)
		w, other := login(t, h, d), login(t, h, mod)
		w.publish(1, events+"AzIoTHub_FaultOperationType=KillTcp", "x")
		synctest.Wait()
		require.ErrorIs(t, w.end(), syscall.ECONNRESET)
		other.ping()
		w = login(t, h, d)
		w.publish(1, events+"AzIoTHub_FaultOperationType=InvokeThrottling&AzIoTHub_FaultOperationDelayInSecs=soon", "x")
		require.Equal(t, uint16(1), w.acked())
		require.Equal(t, io.EOF, w.end())
		login(t, h, d).ping()
	})
}

func TestFaultThatMeetsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		w := login(t, h, d)
		w.publish(1, orderTopic("ShutDownMqtt", "", "10", "0"), "x")
		w.acked()
		w.publish(1, orderTopic("KillTcp", "", "20", "10"), "x")
		w.acked()
		w.conn.Close()
		time.Sleep(15 * time.Second)
		require.Equal(t, []bool{false, false}, []bool{h.FaultMessages()[0].Happened, h.FaultMessages()[1].Happened})
		w = login(t, h, d)
		require.ErrorIs(t, w.end(), syscall.ECONNRESET, "the connection of that time")
		require.True(t, h.FaultMessages()[1].Happened)
	})
}

func TestSettingsOfFaultMessages(t *testing.T) {
	t.Run("not acknowledged", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h, d := newHub(t, &testbroker.Options{FaultMessages: fault.ObeyMessagesUnacked})
			w := login(t, h, d)
			w.publish(1, orderTopic("ShutDownMqtt", "", "1", ""), "x")
			w.publish(2, orderTopic("KillAmqpSession", "", "1", ""), "x")
			require.Equal(t, uint16(2), w.acked())
			require.Equal(t, io.EOF, w.end())
		})
	})
	t.Run("stored", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h, d := newHub(t, &testbroker.Options{FaultMessages: fault.StoreMessages})
			w := login(t, h, d)
			w.publish(1, orderTopic("KillTcp", "", "0", ""), "x")
			w.acked()
			require.Equal(t, 1, h.Len())
			require.Empty(t, h.FaultMessages())
		})
	})
	t.Run("type not known", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h, d := newHub(t, nil)
			w := login(t, h, d)
			w.publish(1, orderTopic("KillAll", "", "0", ""), "x")
			w.acked()
			require.Equal(t, 1, h.Len())
		})
	})
	require.Equal(t, "StoreMessages MessageMode(9)", fmt.Sprint(fault.StoreMessages, " ",
		fault.MessageMode(9)))
}

func TestCloseDoesNotWaitForRequestedFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		w := login(t, h, d)
		w.publish(1, orderTopic("KillTcp", "", "3600", ""), "x")
		w.acked()
		start := time.Now()
		require.NoError(t, h.Close())
		require.Zero(t, time.Since(start))
	})
}

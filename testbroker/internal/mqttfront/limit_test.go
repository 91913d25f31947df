package mqttfront_test

import (
	"fmt"
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// A burst of connects is taken at once, the next wait, the rest is refused. Then the hub takes its
// rate.
func TestALimitOfConnects(t *testing.T) {
	hubtest.InBubble(t, &testbroker.Options{
		Limits: testbroker.LimitOptions{Connects: 10, Burst: time.Second, Queue: 500 * time.Millisecond},
	}, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		start := time.Now()
		connect := func(i int) []byte {
			d := hubtest.AddDevice(t, h, fmt.Sprintf("limited-%d", i))
			return hubtest.Dial(t, h).Connect(hubtest.ConnectOf(d))
		}
		for i := range 10 {
			require.Equal(t, []byte{0, 0}, connect(i))
		}
		require.Zero(t, time.Since(start), "the burst")
		require.Equal(t, []byte{0, 0}, connect(10))
		require.Equal(t, 100*time.Millisecond, time.Since(start))
		for i := range 20 {
			require.Equal(t, []byte{0, 0}, connect(11+i))
		}
		require.Equal(t, 2100*time.Millisecond, time.Since(start), "ten a second")
	})
}

// Connects beyond the queue are refused by CONNACK 3, and cost nothing.
func TestConnectsBeyondTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{Limits: testbroker.LimitOptions{Connects: 1, Burst: time.Second,
			Queue: -1}})
		require.Equal(t, []byte{0, 0}, hubtest.Dial(t, h).Connect(hubtest.ConnectOf(d)))
		for range 10 {
			require.Equal(t, []byte{0, 3}, hubtest.Dial(t, h).Connect(hubtest.ConnectOf(d)))
		}
		time.Sleep(time.Second)
		require.Equal(t, []byte{0, 0}, hubtest.Dial(t, h).Connect(hubtest.ConnectOf(d)))
	})
}

// Acknowledgements keep the rate of messages. A message beyond the queue ends its connection.
func TestALimitOfMessages(t *testing.T) {
	hubtest.InBubble(t, &testbroker.Options{
		Limits: testbroker.LimitOptions{Messages: 10, Burst: 200 * time.Millisecond, Queue: 300 * time.Millisecond},
	}, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w, start := hubtest.Login(t, h, d), time.Now()
		for i := range 5 {
			w.Publish(uint16(i+1), hubtest.Events, fmt.Sprint(i))
		}
		for i, at := range []time.Duration{0, 0, 100, 200, 300} {
			require.EqualValues(t, i+1, w.Acked())
			require.Equal(t, at*time.Millisecond, time.Since(start))
		}
		var five []byte // 300 ms later there is room for three
		for i := range uint16(5) {
			five = append(five, hubtest.PublishBytes(2, i+1, hubtest.Events, "x")...)
		}
		w.Send(five) // at once: the hub may close before a later write
		for range 3 {
			kind, _, err := w.Read()
			if err != nil {
				require.Equal(t, io.EOF, err)
				break
			}
			require.Equal(t, hubtest.Puback, kind)
		}
		synctest.Wait()
		require.Equal(t, 8, h.Len())
		require.Zero(t, h.Connections(d.ID))
	})
}

func TestLimitsOutOfRange(t *testing.T) {
	for _, rate := range []float64{-1, math.NaN(), math.Inf(1)} {
		_, err := testbroker.New(&testbroker.Options{Limits: testbroker.LimitOptions{Connects: rate}})
		require.ErrorContains(t, err, "Limits.Connects is out of range; give ")
		_, err = testbroker.New(&testbroker.Options{Limits: testbroker.LimitOptions{Messages: rate}})
		require.ErrorContains(t, err, "Limits.Messages is out of range; give ")
	}
}

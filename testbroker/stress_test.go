package testbroker_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// TestWhatWasAcknowledgedIsInTheLog runs a few devices through many faults. A device sends each
// message until it has the PUBACK, over new connections if needed. In the end the log must hold all
// messages, in order except for repetitions.
func TestWhatWasAcknowledgedIsInTheLog(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { stress(t, seed) })
		})
	}
}

func stress(t *testing.T, seed uint64) {
	const devices, messages = 3, 60
	rng := rand.New(rand.NewPCG(seed, 1))
	h, _ := hubtest.NewHub(t, &testbroker.Options{Seed: seed + 1})
	kinds := []fault.Kind{
		fault.RefuseConnect, fault.SlowConnack, fault.SwallowConnack, fault.DropConnect,
		fault.DropDuringPublish, fault.DropBeforePublish, fault.DropAfterPublish, fault.DropAfterPuback,
		fault.SlowPuback, fault.SwallowPuback, fault.HalfOpen, fault.Throttle, fault.Absent,
		fault.Quota,
	}
	var faults []*testbroker.Injected
	var plan []fault.Fault
	var pauses []time.Duration
	for range 25 {
		f := fault.Fault{
			Kind: kinds[rng.IntN(len(kinds))], After: rng.IntN(5), Times: 1 + rng.IntN(2),
			Delay: time.Duration(rng.Int64N(int64(time.Second))), For: time.Duration(1 + rng.Int64N(int64(20*time.Second))),
			Rate: 10,
		}
		if f.Kind.Lasts() {
			f.Times = 0
		}
		if rng.IntN(2) == 0 {
			f.Device = fmt.Sprint("d", rng.IntN(devices))
		}
		plan = append(plan, f)
		pauses = append(pauses, time.Duration(rng.Int64N(int64(5*time.Second))))
	}

	var wg sync.WaitGroup
	for i := range devices {
		d, err := h.AddDevice(fmt.Sprint("d", i))
		require.NoError(t, err)
		wg.Go(func() { sendAll(t, h, d, messages) })
	}
	for i, f := range plan {
		time.Sleep(pauses[i])
		faults = append(faults, h.Inject(f))
	}
	wg.Wait()

	next := make(map[string]int)
	for _, m := range h.Messages() {
		var n int
		_, err := fmt.Sscan(m.MessageID, &n)
		require.NoError(t, err)
		if n > next[m.DeviceID] {
			t.Errorf("%s: message %d is missing", m.DeviceID, next[m.DeviceID])
		}
		next[m.DeviceID] = max(next[m.DeviceID], n+1)
	}
	for i := range devices {
		require.Equal(t, messages, next[fmt.Sprint("d", i)])
	}
	require.Empty(t, h.Conflicts())
	fired := 0
	for _, in := range faults {
		fired += in.Fired()
	}
	require.NotZero(t, fired)
}

// sendAll sends one message a second until each is acknowledged. It closes a connection that does
// not answer.
func sendAll(t *testing.T, h *testbroker.Hub, d hubdata.Device, messages int) {
	dial := func() (net.Conn, error) { return h.Dial(testbroker.PortMQTT)(t.Context(), "tcp", "hub") }
	sendAllBy(t, dial, d, "", messages, time.Second)
}

// sendAllBy is sendAll with more properties, another connection and another pause.
func sendAllBy(t *testing.T, dial func() (net.Conn, error), d hubdata.Device, properties string, messages int,
	pause time.Duration,
) {
	for n := 0; n < messages; time.Sleep(pause / 8) {
		raw, err := dial()
		if err != nil {
			continue
		}
		w := hubtest.NewWire(t, raw)
		answer := func(p []byte) (byte, []byte, error) {
			raw.SetDeadline(time.Now().Add(5 * time.Second))
			raw.Write(p) // a failure shows in the missing answer
			return w.Read()
		}
		kind, body, err := answer(hubtest.ConnectOf(d).Bytes())
		if err == nil && kind == hubtest.Connack && body[1] == 0 {
			for n < messages {
				topic := fmt.Sprintf("%s/messages/events/%%24.mid=%d%s", hubtest.Resource(d)[1:], n, properties)
				kind, body, err = answer(hubtest.PublishBytes(2, uint16(n+1), topic, fmt.Sprint("body ", n)))
				if err != nil {
					break
				}
				if kind != hubtest.Puback || body[1] != byte(n+1) {
					t.Errorf("packet of type %d with %x for message %d", kind, body, n)
				}
				n++
				time.Sleep(pause)
			}
		}
		raw.Close()
	}
}

func BenchmarkPublish(b *testing.B) {
	h, d := hubtest.NewHub(b, nil)
	w := hubtest.Login(b, h, d)
	p := hubtest.PublishBytes(2, 1, hubtest.Events+"%24.ct=application%2Fjson&level=high%20temp", `{"celsius":71}`)
	b.ReportAllocs()
	const window = 100
	sent, acked := 0, 0
	for b.Loop() {
		if sent-acked == window {
			w.Acked()
			acked++
		}
		w.Send(p)
		sent++
	}
	for ; acked < sent; acked++ {
		w.Acked()
	}
}
